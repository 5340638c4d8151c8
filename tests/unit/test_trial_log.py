"""Trial logs are read as they grow: each record once, the torn end later, rubbish counted and skipped."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harborrl_trainer.layout import IncarnationId, RunLayout
from harborrl_trainer.supervisor.disk import RunReader
from harborrl_trainer.supervisor.trials import READ_LIMIT, TrialLog, TrialTally
from support import jobs

FIRST, SECOND = IncarnationId(1, 1), IncarnationId(1, 2)


def record(**changes: Any) -> dict[str, Any]:
    fixture: dict[str, Any] = json.loads((jobs.CONTRACTS / "trial_record.json").read_text())
    return fixture | changes


def tally(*records: tuple[IncarnationId, Any]) -> TrialTally:
    counted = TrialTally()
    for id_, value in records:
        counted.add(id_, value)
    return counted


@given(cuts=st.lists(st.integers(0, 400), max_size=8))
def test_however_a_log_grows_each_record_is_read_once(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("trials")
    whole = "".join(json.dumps({"n": number}) + "\n" for number in range(30)).encode()
    log, read, written = TrialLog(folder), list[Any](), 0
    for cut in [*sorted(cuts), len(whole)]:
        with (folder / "driver.jsonl").open("ab") as stream:
            stream.write(whole[written:cut])
        written = max(written, cut)
        read += log.read()
    assert [row["n"] for row in read] == list(range(30))


def test_a_torn_last_line_waits_for_its_end(tmp_path: Path) -> None:
    path, log = tmp_path / "driver.jsonl", TrialLog(tmp_path)
    path.write_text('{"n": 1}\n{"n": ')
    assert list(log.read()) == [{"n": 1}]
    path.write_text('{"n": 1}\n{"n": 2}\n')
    assert list(log.read()) == [{"n": 2}]


def test_the_last_look_reads_a_log_that_is_longer_than_one_look(tmp_path: Path) -> None:
    run = RunLayout(tmp_path / "traces", tmp_path / "checkpoints", tmp_path / "trials")
    log = run.incarnation(*FIRST).trials / "native.jsonl"
    log.parent.mkdir(parents=True)
    run.incarnation(*FIRST).traces.mkdir(parents=True)
    line = json.dumps(record(session="x" * 4000)) + "\n"
    count = READ_LIMIT // len(line) + 10
    log.write_text(line * count)
    reader = RunReader(run, FIRST)
    assert reader.look(0.0, settle_seconds=10).trials.trials < count
    assert reader.look(0.0, settle_seconds=0).trials.trials == count


def test_several_logs_are_read_side_by_side(tmp_path: Path) -> None:
    for name in ("rank0", "rank1"):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"of": name}) + "\n")
    assert [row["of"] for row in TrialLog(tmp_path).read()] == ["rank0", "rank1"]


def test_the_contracts_record_is_one_kept_trial() -> None:
    counted = tally((FIRST, record()))
    assert counted.summary.trials == 1
    assert counted.summary.unreadable == 0
    assert counted.reward_mean(FIRST, 1) == 0.5


def test_rubbish_is_counted_and_costs_nothing_else() -> None:
    counted = tally((FIRST, None), (FIRST, [1]), (FIRST, {"rollout_id": "x"}), (FIRST, record()))
    assert counted.summary.unreadable == 3
    assert counted.summary.trials == 1


def test_a_dropped_group_is_one_however_many_trials_it_had() -> None:
    dropped = [(FIRST, record(group_id=7, kept=False, status=status)) for status in ("aborted", "completed")]
    counted = tally(*dropped, (FIRST, record(group_id=8)))
    assert counted.summary.dropped_groups == 1
    assert counted.summary.aborted == 1
    assert counted.reward_mean(FIRST, 1) == 0.5


def test_the_reward_is_the_owners_when_a_rollout_was_collected_twice() -> None:
    counted = tally((FIRST, record(reward=0.0)), (SECOND, record(reward=1.0)))
    assert counted.reward_mean(FIRST, 1) == 0.0
    assert counted.reward_mean(SECOND, 1) == 1.0
    assert counted.reward_mean(None, 1) == 1.0
    assert counted.reward_mean(SECOND, 2) is None


def test_evaluation_trials_count_towards_evaluations_alone() -> None:
    counted = tally(
        (FIRST, record(evaluation=True, rollout_id=0, reward=0.25)),
        (FIRST, record(evaluation=True, rollout_id=0, reward=0.75)),
        (FIRST, record(evaluation=True, rollout_id=20, reward=1.0)),
    )
    assert counted.evaluations() == {0: 0.5, 20: 1.0}
    assert counted.summary.trials == 0
    assert counted.reward_mean(FIRST, 0) is None


def test_of_an_evaluation_that_was_broken_off_and_repeated_the_last_word_counts() -> None:
    counted = tally(
        (SECOND, record(evaluation=True, rollout_id=20, reward=1.0)),
        (FIRST, record(evaluation=True, rollout_id=20, reward=0.0)),
    )
    assert counted.evaluations() == {20: 1.0}


def test_a_trial_without_a_score_is_counted_but_not_averaged() -> None:
    counted = tally((FIRST, record(reward=None)), (FIRST, record(reward=1.0)))
    assert counted.summary.trials == 2
    assert counted.reward_mean(FIRST, 1) == 1.0
