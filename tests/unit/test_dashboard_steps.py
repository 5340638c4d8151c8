"""Reward per step from the trainer's records: read as they grow, torn lines and repeated rollouts included."""

import json
from pathlib import Path
from typing import Any

from harborrl_agent_server.dashboard.state import StepReward
from harborrl_agent_server.dashboard.steps import StepRecords

EXAMPLE = Path(__file__).resolve().parents[1] / "contract" / "trial_record.json"


def line(rollout: int, reward: float | None, *, kept: bool = True, evaluation: bool = False) -> str:
    """A record as the contract has it, with these values."""
    changed = {"rollout_id": rollout, "reward": reward, "kept": kept, "evaluation": evaluation}
    return json.dumps({**json.loads(EXAMPLE.read_text()), **changed}) + "\n"


def log(run: Path, life: str = "a1/i1", name: str = "native.jsonl") -> Path:
    path = run / life / "trials" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def test_a_step_is_the_mean_over_its_kept_trials(tmp_path: Path) -> None:
    log(tmp_path).write_text(line(0, 1.0) + line(0, 0.0) + line(0, 1.0, kept=False) + line(0, None) + line(1, 0.5))
    first, second = StepRecords(tmp_path).look()
    assert first == StepReward(step=0, evaluation=False, trials=4, kept=2, mean=0.5, error=0.5)
    assert second.error == 0.0


def test_evaluations_are_apart(tmp_path: Path) -> None:
    log(tmp_path).write_text(line(3, 0.0) + line(3, 1.0, evaluation=True))
    assert [(step.evaluation, step.mean) for step in StepRecords(tmp_path).look()] == [(False, 0.0), (True, 1.0)]


def test_a_step_that_lost_every_trial_has_no_mean(tmp_path: Path) -> None:
    log(tmp_path).write_text(line(0, None, kept=False))
    assert StepRecords(tmp_path).look()[0].mean is None


def test_only_what_is_new_is_read_and_a_torn_line_waits_for_its_end(tmp_path: Path) -> None:
    path, records = log(tmp_path), StepRecords(tmp_path)
    whole = line(0, 1.0)
    path.write_text(whole + whole[:20])
    assert records.look()[0].trials == 1
    with path.open("a") as file:
        file.write(whole[20:])
    assert records.look()[0].trials == 2
    assert records.look()[0].trials == 2


def test_a_rollout_that_was_collected_again_counts_as_its_newest_life_saw_it(tmp_path: Path) -> None:
    log(tmp_path, "a2/i1").write_text(line(5, 1.0))
    log(tmp_path, "a1/i10").write_text(line(4, 0.25) + line(5, 0.0))
    log(tmp_path, "a1/i9").write_text(line(4, 0.75))
    assert [(step.step, step.mean) for step in StepRecords(tmp_path).look()] == [(4, 0.25), (5, 1.0)]


def test_what_is_no_record_counts_for_nothing(tmp_path: Path) -> None:
    strange: list[Any] = ["x", [], {}, {"rollout_id": "a"}, {"rollout_id": 0, "kept": True, "reward": "1"}]
    lines = "".join(json.dumps(one) + "\n" for one in strange)
    log(tmp_path).write_text(lines + '{"rollout_id": 0, "kept": true, "reward": NaN}\n' + "[" * 5000 + "\n")
    assert [(step.trials, step.mean) for step in StepRecords(tmp_path).look()] == [(2, None)]


def test_without_records_there_are_no_steps(tmp_path: Path) -> None:
    assert StepRecords(tmp_path / "none").look() == ()
