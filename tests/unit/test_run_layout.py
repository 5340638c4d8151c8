"""Paths of a run, and the ids that names give back."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harborrl_trainer import layout
from harborrl_trainer.job import read_job
from harborrl_trainer.layout import IncarnationId, RunLayout

RUN = RunLayout.of(read_job(Path(__file__).resolve().parents[1] / "contract" / "job_document.json"))
ids = st.integers(min_value=0, max_value=10**9)
positive = st.integers(min_value=1, max_value=10**6)


def test_an_incarnation_writes_where_the_contract_says() -> None:
    mine = RUN.incarnation(2, 3)
    run = "research/quickstart-5f0c2a9e"
    assert mine.rollout_file(0) == Path(f"/mnt/traces/{run}/a2/i3/traces/rollout_data/0.pt")
    assert mine.rollout_file(4, evaluation=True).name == "eval_4.pt"
    assert mine.train_file(7, 1) == Path(f"/mnt/traces/{run}/a2/i3/traces/train_data/7_1.pt")
    assert mine.trajectory_file(7) == Path(f"/mnt/traces/{run}/a2/i3/traces/trajectory/7.jsonl")
    assert mine.driver_log == Path(f"/mnt/traces/{run}/a2/i3/traces/driver.log")
    assert mine.metrics == Path(f"/mnt/traces/{run}/a2/i3/traces/metrics.jsonl")
    assert mine.checkpoint(19) == Path(f"/mnt/checkpoints/{run}/a2/i3/checkpoints/iter_0000019")
    assert mine.trials == Path(f"/mnt/trials/{run}/a2/i3/trials")
    assert RUN.index == Path(f"/mnt/checkpoints/{run}/index.json")
    assert RUN.harbor_trial("x-1") == Path(f"/mnt/trials/{run}/harbor/x-1")


def test_the_fixture_of_the_contract_names_the_same_checkpoint() -> None:
    progress = '"research/quickstart-5f0c2a9e/a1/i1/checkpoints/iter_0000000"'
    assert str(RUN.incarnation(1, 1).checkpoint(0).relative_to("/mnt/checkpoints")) in progress


@given(rollout=ids, rank=ids, evaluation=st.booleans(), attempt=positive, incarnation=positive)
def test_every_name_gives_its_ids_back(
    rollout: int, rank: int, evaluation: bool, attempt: int, incarnation: int
) -> None:
    mine = RUN.incarnation(attempt, incarnation)
    assert layout.rollout_of(mine.rollout_file(rollout, evaluation=evaluation).name) == (rollout, evaluation)
    assert layout.train_of(mine.train_file(rollout, rank).name) == (rollout, rank)
    assert layout.checkpoint_of(mine.checkpoint(rollout).name) == rollout
    assert layout.attempt_of(mine.traces.parents[1].name) == attempt
    assert layout.incarnation_of(mine.traces.parent.name) == incarnation
    submission = layout.submission_id("job-a1-i1", attempt, incarnation)
    assert layout.incarnation_of_submission(submission, "job-a1-i1", attempt) == incarnation


@pytest.mark.parametrize("name", ["1.pt.tmp", ".1.pt", "x.pt", "eval_.pt", "-1.pt", "1_0.pt", "1.pt\n"])
def test_a_foreign_name_is_no_rollout(name: str) -> None:
    assert layout.rollout_of(name) is None


@pytest.mark.parametrize("name", ["iter_19", "iter_0000019.tmp", "latest_checkpointed_iteration.txt"])
def test_a_foreign_name_is_no_checkpoint(name: str) -> None:
    assert layout.checkpoint_of(name) is None


def test_another_jobs_submission_is_not_ours() -> None:
    assert layout.incarnation_of_submission("quickstart-a1-i2", "quickstart", 2) is None
    assert layout.incarnation_of_submission("quick-a1-i2", "quickstart", 1) is None
    assert layout.incarnation_of_submission("quickstart-a1-i0", "quickstart", 1) is None


def test_a_later_attempt_is_later_than_any_incarnation_before_it() -> None:
    assert IncarnationId(2, 1) > IncarnationId(1, 9) > IncarnationId(1, 2)
