"""What runs have dumped, as tables and documents: whose rollouts count, what is in them, how two runs differ."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from harborrl_cli.__main__ import app
from harborrl_trainer.dump_reading import catalogue, logs, measures
from harborrl_trainer.dump_reading.digests import RolloutDigest, SampleDigest, TrainDigest, TrainRow
from harborrl_trainer.errors import ConfigurationError
from harborrl_trainer.index import Claim, add_claim
from harborrl_trainer.layout import IncarnationId
from support.dump_files import sample, write_hostile, write_lines, write_rollout, write_run, write_train
from support.permissions import unprivileged_folder

FIRST, SECOND = IncarnationId(1, 1), IncarnationId(2, 1)


def harborrl(*words: object) -> Result:
    return CliRunner().invoke(app, ["dumps", *(str(word) for word in words)])


def digest(*samples: dict[str, Any]) -> RolloutDigest:
    usual: dict[str, Any] = {
        "index": 0, "group": 0, "instance": "a", "status": "completed", "reward": 0.0, "response": 10, "tokens": 20,
        "trained": 8, "oldest_version": 1, "newest_version": 1, "turns": 1,
    }  # fmt: skip
    return RolloutDigest(kind="rollout", rollout=3, samples=tuple(SampleDigest(**usual | one) for one in samples))


def train(rank: int, cp_rank: int, *rows: tuple[int, int, float]) -> TrainDigest:
    """Rows are sample index, tokens compared and the sum of differences, all positive."""
    made = tuple(
        TrainRow(index=i, response=9, compared=n, absolute_sum=gap, absolute_max=gap, signed_sum=gap)
        for i, n, gap in rows
    )
    return TrainDigest(kind="train", rollout=3, rank=rank, cp_rank=cp_rank, cp_size=2, rows=made)


def test_statuses_rewards_lengths_and_staleness_of_a_rollout() -> None:
    found = measures.of_rollout(
        digest(
            {"reward": 1.0, "oldest_version": 3, "newest_version": 4},
            {"reward": 0.0, "status": "truncated", "response": 30},
            {"reward": 1.0, "group": 1},
            {"reward": 1.0, "group": 1},
            {"reward": "not finite", "group": 2, "status": "aborted", "oldest_version": None, "newest_version": None},
        ),
        rollout=3,
    )
    assert (found.samples, found.groups, found.rewards, found.groups_without_signal) == (5, 3, 4, 1)
    assert found.statuses == {"completed": 3, "truncated": 1, "aborted": 1}
    assert found.reward is not None
    assert (found.reward.mean, found.reward.std) == pytest.approx((0.75, 0.4330127))
    assert found.response_tokens == measures.Spread(14.0, 8.0, 30)
    assert found.staleness is not None
    assert (found.staleness.mean, found.staleness.max, found.mixed_versions) == (1.5, 2, 1)


def test_each_part_of_a_sample_counts_once_whatever_ranks_repeat_it() -> None:
    gap = measures.of_training(
        [train(0, 0, (5, 2, 1.0)), train(1, 0, (5, 2, 1.0)), train(2, 1, (5, 2, 3.0)), train(3, 0, (6, 4, 0.0))]
    )
    assert gap is not None
    assert (gap.tokens, gap.mean_absolute, gap.max_absolute, gap.mean) == (8, 0.5, 3.0, 0.5)


def test_without_log_probabilities_there_is_no_gap() -> None:
    assert measures.of_training([]) is None


def test_a_rollout_that_was_collected_again_counts_where_its_owner_dumped_it(tmp_path: Path) -> None:
    traces, checkpoints = tmp_path / "traces" / "ns" / "job", tmp_path / "checkpoints" / "ns" / "job"
    write_run(traces, (0.0, 0.0, 0.0), "a1/i1")
    write_run(traces, (0.0, 0.0, 1.0), "a2/i1")
    add_claim(checkpoints / "index.json", Claim(attempt=1, incarnation=1, first_rollout=0))
    add_claim(checkpoints / "index.json", Claim(attempt=2, incarnation=1, first_rollout=2))
    found = catalogue.read(traces)
    assert [(one.rollout, one.incarnation) for one in found.entries if one.owned] == [
        (0, FIRST),
        (1, FIRST),
        (2, SECOND),
    ]
    assert all(one.is_trained for one in found.entries)


def test_the_index_may_be_named(tmp_path: Path) -> None:
    write_run(tmp_path / "t", incarnation="a1/i1")
    write_run(tmp_path / "t", incarnation="a1/i2")
    add_claim(tmp_path / "c" / "index.json", Claim(attempt=1, incarnation=2, first_rollout=0))
    entries = catalogue.read(tmp_path / "t", tmp_path / "c").entries
    assert {one.incarnation for one in entries if one.owned} == {IncarnationId(1, 2)}


def test_a_folder_of_miles_itself_is_read_too(tmp_path: Path) -> None:
    write_rollout(tmp_path / "rollout_data" / "eval_4.pt", [sample(0)])
    write_train(tmp_path / "train_data" / "4_0.pt", {0: (0.0, 0.0, 0.0)})
    write_train(tmp_path / "train_data" / "5_0.pt", {0: (0.0, 0.0, 0.0)})
    write_train(tmp_path / "train_data" / "5_1.pt", {0: (0.0, 0.0, 0.0)})
    found = catalogue.read(tmp_path)
    assert [(one.rollout, one.evaluation, one.is_trained, one.owned) for one in found.entries] == [
        (4, False, False, True),
        (4, True, False, True),
        (5, False, True, True),
    ]


def test_a_folder_without_dumps_says_what_is_looked_for(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="holds neither a<N>/i<M>/traces nor rollout_data"):
        catalogue.read(tmp_path)


def test_trial_logs_are_counted_by_rollout_and_torn_lines_passed_over(tmp_path: Path) -> None:
    line = {"rollout_id": 1, "kept": True, "status": "completed", "drop_reason": ""}
    lost = {
        "rollout_id": 1,
        "kept": False,
        "status": "aborted",
        "outcome": "QueueTimeout",
        "drop_reason": "has_aborted",
    }
    path = write_lines(tmp_path / "x.jsonl", line, lost, '{"rollout', "[]", {**line, "evaluation": True})
    found = logs.trials([path, tmp_path / "missing.jsonl"])
    assert (found[1, False].trials, found[1, False].kept) == (2, 1)
    assert found[1, False].causes == {"QueueTimeout": 1}
    assert found[1, False].drop_reasons == {"has_aborted": 1}
    assert found[1, True].trials == 1


def test_list_opens_no_dump(tmp_path: Path) -> None:
    write_hostile(write_run(tmp_path) / "a1" / "i1" / "traces" / "rollout_data" / "2.pt", "false", archive=True)
    done = harborrl("list", tmp_path, "--json")
    (run,) = json.loads(done.stdout)["runs"]
    assert [(one["rollout"], one["trained"], one["owned"], one["ranks"]) for one in run["rollouts"]] == [
        (0, True, True, [0]),
        (1, True, True, [0]),
        (2, False, True, []),
    ]
    people = harborrl("list", tmp_path)
    assert people.exit_code == 0
    assert "3 rollouts, 2 trained" in people.stdout


def test_summary_gives_a_row_a_rollout_and_one_line_for_what_it_refuses(tmp_path: Path) -> None:
    write_hostile(write_run(tmp_path) / "a1" / "i1" / "traces" / "rollout_data" / "2.pt", "false", archive=True)
    write_lines(tmp_path / "a1" / "i1" / "trials" / "x.jsonl", {"rollout_id": 1, "kept": True, "status": "completed"})
    done = harborrl("summary", tmp_path, "--json")
    assert done.exit_code == 1
    assert done.stderr.count("\n") == 1
    assert "2.pt: names posix.system" in done.stderr
    (run,) = json.loads(done.stdout)["runs"]
    first, second, refused = run["rollouts"]
    assert first["statistics"]["reward"] == {"mean": 0.0, "std": 0.0, "max": 0.0}
    assert first["logProbGap"]["tokens"] == 4
    assert first["logProbGap"]["meanAbsolute"] == pytest.approx(0.1)
    assert (second["turns"], second["trials"]["trials"]) == (1, 1)
    assert refused["statistics"] is None
    assert run["total"] == {"rollouts": 2, "samples": 4, "statuses": {"completed": 4}, "rewardMean": 0.5}


def test_only_a_dump_that_may_be_half_is_excused_by_its_age(tmp_path: Path) -> None:
    traces = tmp_path / "rollout_data"
    hostile, torn = write_hostile(write_rollout(traces / "0.pt", []), "false", archive=True), traces / "1.pt"
    torn.write_bytes(b"")
    for path in (hostile, torn):
        os.utime(path, (4e9, 4e9))  # young, however slow the machine is
    (traces / "2.pt").mkdir()
    said = harborrl("summary", tmp_path).stderr.splitlines()
    young = "it is younger than 10 s and may not be whole yet"
    assert said == [
        f"{hostile}: names posix.system, which is in no dump: opening it elsewhere may run its code",
        f"{torn}: is torn, still being written, or no dump (it ends too early); {young}",
    ]


def test_summary_for_people_and_of_the_newest_alone(tmp_path: Path) -> None:
    done = harborrl("summary", write_run(tmp_path), "--last", 1)
    assert done.exit_code == 0
    assert "1.000 ± 0.000" in done.stdout
    assert "0.000 ± 0.000" not in done.stdout
    assert "2 samples in 1 rollouts (2 completed), reward mean 1.000" in done.stdout


def test_compare_lays_two_runs_side_by_side(tmp_path: Path) -> None:
    one, other = write_run(tmp_path / "a", (0.0, 0.5)), write_run(tmp_path / "b", (0.5, 0.5, 1.0))
    found = json.loads(harborrl("compare", one, other, "--json").stdout)
    assert [row["reward"] for row in found["rollouts"]] == [
        {"first": 0.0, "second": 0.5, "difference": 0.5},
        {"first": 0.5, "second": 0.5, "difference": 0.0},
        {"first": None, "second": 1.0, "difference": None},
    ]
    assert found["overall"] == {
        "common": 2,
        "meanDifference": {"reward": 0.25, "responseTokens": 0.0, "truncatedShare": 0.0, "logProbGap": 0.0},
    }
    people = harborrl("compare", one, other)
    assert "2 rollouts in both; mean of B-A: reward +0.25" in people.stdout


def test_what_a_file_says_does_not_speak_to_the_terminal(tmp_path: Path) -> None:
    traces = tmp_path / "rollout_data"
    write_rollout(traces / "0.pt", [sample(0, status="\x1b[2Jgone\n")])
    done = harborrl("summary", tmp_path)
    assert "gone" in done.stdout
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize("command", ["list", "summary"])
def test_a_folder_that_is_none_is_one_line(command: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name, said in (("nothing", "there is no such folder; name"), ("file", "is no folder; name")):
        done = harborrl(command, tmp_path / name)
        assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
        assert done.stderr.startswith(f"{tmp_path / name}: {said}")


def test_checkpoints_that_are_named_wrong_change_no_answer_in_silence(tmp_path: Path) -> None:
    done = harborrl("list", write_run(tmp_path / "run"), "--checkpoints", tmp_path / "nothing")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith(f"{tmp_path / 'nothing'}: holds no index.json, which says whose rollouts count; name")


@pytest.mark.parametrize("command", ["list", "summary"])
def test_a_folder_of_dumps_that_is_closed_is_one_line(command: str) -> None:
    with unprivileged_folder() as folder:
        closed = folder / "rollout_data"
        closed.mkdir()
        closed.chmod(0)
        try:
            done = harborrl(command, folder)
        finally:
            closed.chmod(0o700)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == (
        f"{closed}: cannot be read (Permission denied); make it readable to you, or name another folder\n"
    )


def test_a_closed_index_of_checkpoints_is_one_line() -> None:
    with unprivileged_folder() as folder:
        (folder / "a1" / "i1" / "traces" / "rollout_data").mkdir(parents=True)
        (folder / "index.json").write_text("{}")
        (folder / "index.json").chmod(0)
        with pytest.raises(ConfigurationError, match=r"index\.json: cannot be read \(Permission denied\)"):
            catalogue.read(folder)
