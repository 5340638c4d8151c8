"""Every model that a run of Miles loads is looked at before a GPU is held, not the job's own alone."""

from dataclasses import replace
from pathlib import Path

import pytest

from harborrl_trainer.job import JobDocument
from harborrl_trainer.launch.seam import Launch, Start
from harborrl_trainer.miles_engine import plan as plans
from harborrl_trainer.miles_plan.planning import Planner
from harborrl_trainer.preflight.miles import check_models
from support import jobs
from support.miles_run import Run, launch


def serving(job: JobDocument, start: Start) -> Launch:
    return replace(launch(job, start), models=(Path(f"{job.model.path}-FP8"),))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.of(tmp_path)


def test_the_copy_that_engines_serve_is_missed_by_the_preflight_and_by_the_plan(run: Run) -> None:
    (missing,) = check_models(run.job, serving).findings
    assert (missing.reason, missing.severity) == ("ModelNotFound", "refuse")
    assert "tiny-FP8 is not a directory. The preset's engines serve this quantised copy" in missing.message
    plan = plans.load(Planner(run.job, serving, {}).plan(1, 1))
    assert plan.ending is not None
    assert (plan.ending.exit_code, "tiny-FP8 is not a directory" in plan.ending.sentence) == (64, True)
    assert run.claims() == ()


def test_a_copy_that_is_there_is_opened_by_the_driver_too(run: Run) -> None:
    served = jobs.make_model(Path(f"{run.job.model.path}-FP8"))
    assert check_models(run.job, serving).findings == []
    assert str(served) in plans.load(Planner(run.job, serving, {}).plan(1, 1)).checks.readable


def test_a_torn_copy_is_refused(run: Run) -> None:
    served = jobs.make_model(Path(f"{run.job.model.path}-FP8"))
    (served / "model.safetensors").write_bytes(b"version https://git-lfs")
    assert [one.reason for one in check_models(run.job, serving).findings] == ["ModelIncomplete"]


def test_converted_weights_that_are_not_there_are_missed_by_the_preflight(tmp_path: Path) -> None:
    converted = tmp_path / "models" / "tiny_torch_dist"
    job = Run.of(tmp_path, model__refLoad=str(converted)).job
    (missing,) = check_models(job, launch).findings
    assert missing.message == (
        f"{converted} is not a directory. Put the converted weights on the models volume or correct model.refLoad."
    )
    converted.mkdir()
    assert check_models(job, launch).findings == []
