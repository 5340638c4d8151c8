"""A run goes on from its newest whole checkpoint, and what an overtaken incarnation writes counts for nothing."""

import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harborrl_trainer import files, index
from harborrl_trainer.checkpoints import Checkpoint, StartPoint, begin, find_start, list_checkpoints, newest_complete
from harborrl_trainer.errors import ConfigurationError, InfrastructureError, RestartAtZeroError, StorageError
from harborrl_trainer.index import Claim
from harborrl_trainer.layout import IncarnationId, RunLayout
from support import jobs


@pytest.fixture
def volumes(tmp_path: Path) -> Path:
    jobs.make_volumes(tmp_path)
    return tmp_path


def save(volumes: Path, attempt: int, incarnation: int, rollout: int, *, complete: bool = True) -> Path:
    run = RunLayout.of(jobs.job(volumes))
    return jobs.make_checkpoint(run.incarnation(attempt, incarnation).checkpoint(rollout), complete=complete)


def test_a_first_incarnation_starts_from_the_model_and_claims_every_rollout(volumes: Path) -> None:
    job = jobs.job(volumes)
    assert begin(job, 1, 1) == StartPoint(0, None)
    (claim,) = index.read_claims(RunLayout.of(job).index)
    assert claim == Claim(attempt=1, incarnation=1, first_rollout=0, resumed_from=None)


def test_the_next_incarnation_goes_on_after_the_newest_whole_checkpoint(volumes: Path) -> None:
    job = jobs.job(volumes)
    begin(job, 1, 1)
    save(volumes, 1, 1, 3)
    newest = save(volumes, 1, 1, 7)
    save(volumes, 1, 1, 8, complete=False)
    assert begin(job, 1, 2) == StartPoint(8, newest)
    claims = index.read_claims(RunLayout.of(job).index)
    assert claims[-1].resumed_from == "research/quickstart-5f0c2a9e/a1/i1/checkpoints/iter_0000007"
    assert [index.owner(claims, rollout) for rollout in (0, 7, 8, 99)] == [(1, 1), (1, 1), (1, 2), (1, 2)]


def test_what_an_overtaken_incarnation_saves_later_is_passed_over(volumes: Path) -> None:
    job = jobs.job(volumes)
    begin(job, 1, 1)
    save(volumes, 1, 1, 5)
    begin(job, 2, 1)
    save(volumes, 1, 1, 20)
    mine = save(volumes, 2, 1, 9)
    assert find_start(job) == StartPoint(10, mine)


def test_an_overtaken_incarnation_that_begins_late_is_turned_away(volumes: Path) -> None:
    job = jobs.job(volumes)
    begin(job, 2, 1)
    with pytest.raises(InfrastructureError, match="a2/i1 owns this run now"):
        begin(job, 1, 9)
    assert len(index.read_claims(RunLayout.of(job).index)) == 1


def test_a_run_never_begins_at_0_beside_a_whole_checkpoint_of_its_own(volumes: Path) -> None:
    job = jobs.job(volumes)
    begin(job, 1, 1)
    begin(job, 2, 1)
    save(volumes, 1, 1, 5)  # of the first incarnation, which lived on unseen
    with pytest.raises(RestartAtZeroError, match=r"whole checkpoint of rollout 5 \(a1/i1/checkpoints/iter_0000005\)"):
        begin(job, 3, 1)
    assert len(index.read_claims(RunLayout.of(job).index)) == 2


KNOWN = {"rolloutId": 39, "path": "research/quickstart-5f0c2a9e/a1/i1/checkpoints/iter_0000039"}


def test_a_run_that_is_known_to_have_saved_does_not_begin_at_0_on_an_empty_volume(volumes: Path) -> None:
    job = jobs.job(volumes, attempt=2, knownCheckpoint=KNOWN)
    with pytest.raises(RestartAtZeroError, match=r"rollout 39 \(.*iter_0000039\), but there is no whole one") as raised:
        begin(job, 2, 1)
    assert "delete the job and apply it again" in str(raised.value)
    assert index.read_claims(RunLayout.of(job).index) == ()


def test_an_older_copy_of_the_volume_is_refused_with_the_way_to_go_on_from_it(volumes: Path) -> None:
    save(volumes, 1, 1, 20)
    with pytest.raises(
        RestartAtZeroError, match=r"is of rollout 20, and it would begin at rollout 21; .* resumeFrom\.path"
    ):
        find_start(jobs.job(volumes, knownCheckpoint=KNOWN))


def test_a_known_checkpoint_that_is_damaged_on_its_own_volume_may_be_fallen_back_from(volumes: Path) -> None:
    older = save(volumes, 1, 1, 20)
    save(volumes, 1, 1, 39, complete=False)
    assert find_start(jobs.job(volumes, knownCheckpoint=KNOWN)) == StartPoint(21, older)


def test_with_every_checkpoint_damaged_a_known_run_does_not_begin_at_0(volumes: Path) -> None:
    save(volumes, 1, 1, 39, complete=False)
    with pytest.raises(RestartAtZeroError, match="there is no whole one"):
        find_start(jobs.job(volumes, knownCheckpoint=KNOWN))


def test_what_another_run_left_is_no_stand_in_for_a_known_checkpoint(volumes: Path) -> None:
    jobs.make_checkpoint(volumes / "checkpoints" / "other" / "iter_0000050")
    job = jobs.job(volumes, knownCheckpoint=KNOWN, resumeFrom={"path": "other/iter_0000050"})
    with pytest.raises(RestartAtZeroError, match="rollout 39"):
        find_start(job)


def test_a_known_checkpoint_or_a_newer_one_on_another_claim_is_gone_on_from(volumes: Path) -> None:
    newer = save(volumes, 1, 1, 43)
    assert find_start(jobs.job(volumes, knownCheckpoint=KNOWN)) == StartPoint(44, newer)


def test_a_torn_checkpoint_does_not_keep_a_run_from_beginning(volumes: Path) -> None:
    save(volumes, 1, 1, 5, complete=False)
    assert begin(jobs.job(volumes), 1, 2) == StartPoint(0, None)


def test_what_a_start_could_not_bring_along_is_written_into_its_claim(volumes: Path) -> None:
    job = jobs.job(volumes)
    older, newer = save(volumes, 1, 1, 3), save(volumes, 1, 1, 4, complete=False)
    begin(job, 1, 2, optimizer=False, set_aside=[newer])
    (claim,) = index.read_claims(RunLayout.of(job).index)
    assert claim.optimizer is False
    assert claim.set_aside == ("research/quickstart-5f0c2a9e/a1/i1/checkpoints/iter_0000004",)
    assert claim.resumed_from == str(older.relative_to(volumes / "checkpoints"))


def test_two_who_claim_at_once_both_stand_in_the_index(volumes: Path) -> None:
    path = RunLayout.of(jobs.job(volumes)).index
    mine = Claim(attempt=1, incarnation=2, first_rollout=4)
    late = threading.Thread(target=index.add_claim, args=(path, mine))
    with files.locked(path):
        late.start()
        first = '{"schemaVersion": 1, "claims": [{"attempt": 1, "incarnation": 1, "firstRollout": 0}]}'
        files.replace(path, first)
    late.join()
    assert [claim.id for claim in index.read_claims(path)] == [(1, 1), (1, 2)]


def test_a_lock_that_is_held_too_long_is_said_and_one_that_was_freed_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "index.json"
    with files.locked(path), pytest.raises(TimeoutError, match="holds the lock"), files.locked(path, seconds=0):
        pytest.fail("two hold one lock")
    with files.locked(path, seconds=0):
        assert not path.exists()


def test_beginning_twice_is_one_claim(volumes: Path) -> None:
    job = jobs.job(volumes)
    assert begin(job, 1, 1) == begin(job, 1, 1)
    assert len(index.read_claims(RunLayout.of(job).index)) == 1


def test_checkpoints_count_when_no_one_ever_claimed(volumes: Path) -> None:
    found = save(volumes, 1, 1, 2)
    assert find_start(jobs.job(volumes)) == StartPoint(3, found)


def test_another_run_is_continued_only_by_name_and_only_until_there_is_an_own_checkpoint(volumes: Path) -> None:
    other = volumes / "checkpoints" / "research" / "other-00000000"
    theirs = jobs.make_checkpoint(other / "a1" / "i1" / "checkpoints" / "iter_0000041")
    assert find_start(jobs.job(volumes)) == StartPoint(0, None)
    by_run = jobs.job(volumes, resumeFrom={"path": "research/other-00000000"})
    by_checkpoint = jobs.job(volumes, resumeFrom={"path": "research/other-00000000/a1/i1/checkpoints/iter_0000041"})
    assert find_start(by_run) == find_start(by_checkpoint) == StartPoint(42, theirs)
    own = save(volumes, 1, 1, 43)
    assert find_start(by_run) == StartPoint(44, own)


def test_a_source_that_cannot_be_continued_is_a_configuration_error(volumes: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"^resumeFrom\."):
        find_start(jobs.job(volumes, resumeFrom={"path": "research/none"}))


def test_a_damaged_index_is_said_and_not_overwritten(volumes: Path) -> None:
    job = jobs.job(volumes)
    path = RunLayout.of(job).index
    path.parent.mkdir(parents=True)
    path.write_text('{"schemaVersion": 1, "claims": [')
    with pytest.raises(StorageError, match="damaged"):
        begin(job, 1, 1)
    assert path.read_text().endswith("[")


@given(
    starts=st.lists(st.integers(0, 30), min_size=1, max_size=6),
    saved=st.sets(st.tuples(st.integers(1, 6), st.integers(0, 40), st.booleans())),
)
def test_the_chosen_checkpoint_is_whole_owned_and_the_furthest_of_those(
    starts: list[int], saved: set[tuple[int, int, bool]]
) -> None:
    claims = [Claim(attempt=n, incarnation=1, first_rollout=start) for n, start in enumerate(starts, start=1)]
    found = [Checkpoint(IncarnationId(n, 1), rollout, Path(), complete) for n, rollout, complete in saved]
    chosen = newest_complete(found, claims)
    usable = [c.rollout for c in found if c.complete and index.owner(claims, c.rollout) in {c.id, None}]
    assert (chosen.rollout if chosen else None) == max(usable, default=None)
    assert chosen is None or chosen.complete


def test_foreign_names_between_checkpoints_are_passed_over(volumes: Path) -> None:
    save(volumes, 1, 1, 2)
    run = RunLayout.of(jobs.job(volumes))
    (run.incarnation(1, 1).checkpoints / "latest_checkpointed_iteration.txt").write_text("2")
    (run.checkpoints / "lost+found").mkdir()
    (run.checkpoints / "a1" / "notes").mkdir()
    assert [checkpoint.rollout for checkpoint in list_checkpoints(run.checkpoints)] == [2]
