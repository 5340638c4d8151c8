"""Progress is read from names and times; young, torn and overtaken files do not count."""

from pathlib import Path

from harborrl_trainer.dumps import Dumps, DumpSummary, scan_run, summarise
from harborrl_trainer.index import Claim
from harborrl_trainer.layout import IncarnationId
from support.supervision import EPOCH, Pod

FIRST, SECOND = IncarnationId(1, 1), IncarnationId(2, 1)


def at(*minutes: float) -> dict[int, float]:
    """Rollout n was dumped after the n-th of so many minutes."""
    return {rollout: EPOCH + 60 * minute for rollout, minute in enumerate(minutes)}


def test_nothing_on_disk_is_no_progress(tmp_path: Path) -> None:
    assert scan_run(tmp_path / "none") == {}
    assert summarise({}, (), EPOCH) == DumpSummary()


def test_a_dump_counts_only_after_it_has_settled() -> None:
    dumps = {FIRST: Dumps(collected=at(0, 1))}
    assert summarise(dumps, (), EPOCH + 69).collected == 1
    assert summarise(dumps, (), EPOCH + 70).collected == 2
    assert summarise(dumps, (), EPOCH + 60, settle_seconds=0).collected == 2


def test_a_rollout_is_trained_when_every_rank_has_dumped() -> None:
    both, one = {0: EPOCH, 1: EPOCH}, {0: EPOCH}
    dumps = {FIRST: Dumps(collected=at(0, 0, 0), trained={0: both, 1: both, 2: one})}
    assert summarise(dumps, (), EPOCH + 60).trained == 2


def test_a_set_with_one_young_rank_is_not_trained_yet() -> None:
    dumps = {FIRST: Dumps(trained={0: {0: EPOCH, 1: EPOCH + 55}})}
    assert summarise(dumps, (), EPOCH + 60).trained == 0


def test_the_median_is_over_neighbouring_rollouts_of_one_incarnation() -> None:
    dumps = {
        FIRST: Dumps(collected=at(0, 1, 3, 13)),
        SECOND: Dumps(collected={4: EPOCH + 6000, 5: EPOCH + 6060}),
    }
    # Gaps 60, 120, 600 and 60 s; the hour and more between the attempts is nobody's rollout.
    assert summarise(dumps, (), EPOCH + 9999).median_seconds == 90


def test_one_rollout_has_no_median() -> None:
    assert summarise({FIRST: Dumps(collected=at(0))}, (), EPOCH + 60).median_seconds is None


def test_rollouts_collected_twice_are_lost_once_and_counted_once() -> None:
    claims = [Claim(attempt=1, incarnation=1, first_rollout=0), Claim(attempt=2, incarnation=1, first_rollout=3)]
    dumps = {FIRST: Dumps(collected=at(0, 1, 2, 3, 4)), SECOND: Dumps(collected={3: EPOCH + 900})}
    seen = summarise(dumps, claims, EPOCH + 999)
    assert seen.collected == 4
    assert seen.lost_rollouts == 2


def test_the_newest_of_any_dump_is_the_heartbeat() -> None:
    dumps = {FIRST: Dumps(collected=at(0), trained={0: {0: EPOCH + 30}}, evaluated={0: EPOCH + 20})}
    seen = summarise(dumps, (), EPOCH + 60)
    assert seen.last_dump_time == EPOCH + 30
    assert seen.evaluated == 0


def test_a_scan_knows_its_files_and_no_others(tmp_path: Path) -> None:
    pod = Pod(tmp_path)
    mine = pod.mine()
    for path in (
        mine.rollout_file(0),
        mine.rollout_file(0, evaluation=True),
        mine.train_file(0, 1),
        mine.rollout_data / "1.pt.tmp",
        mine.rollout_data / "notes.txt",
    ):
        pod.dump(path)
    assert scan_run(pod.run.traces) == {
        FIRST: Dumps(collected={0: EPOCH}, evaluated={0: EPOCH}, trained={0: {1: EPOCH}})
    }
