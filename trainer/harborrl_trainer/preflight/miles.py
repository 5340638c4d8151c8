"""For `engine: miles`: which checkpoint of Miles' the run goes on from, its arguments, and all the models it loads."""

from pathlib import Path

from harborrl_trainer.checkpoints import on_volume
from harborrl_trainer.errors import ConfigurationError, RestartAtZeroError, TrainerError
from harborrl_trainer.job import JobDocument
from harborrl_trainer.launch.seam import Launch, Start
from harborrl_trainer.layout import RunLayout
from harborrl_trainer.miles_plan import found
from harborrl_trainer.miles_plan.demands import SERVED_REMEDY
from harborrl_trainer.miles_plan.planning import MakeLaunch
from harborrl_trainer.miles_plan.resume import How, Resume
from harborrl_trainer.preflight import model
from harborrl_trainer.preflight.findings import Finding, Outcome, refuse, warn


def check_resume(job: JobDocument) -> Outcome:
    """Facts: `resume`, the checkpoint the next incarnation will load, or null for a start from the model.

    Judged by what Miles left, since a checkpoint of a run that was killed may be whole without our mark.
    """
    run = RunLayout.of(job)
    try:
        _, begin = found.beginning(job)
    except RestartAtZeroError as error:
        return Outcome([refuse("resume", "RestartAtZero", str(error))])
    except TrainerError as error:
        return Outcome([refuse("resume", "ResumeSourceInvalid", str(error))])
    except OSError as error:
        message = f"{run.checkpoints}: cannot be read ({error.strerror}). Give the trainer's user read access."
        return Outcome([refuse("resume", "VolumeNotReadable", message)])
    facts = {"resume": _facts(job, begin)}
    if not begin.notices:
        return Outcome([], facts)
    message = f"{'; '.join(begin.notices)}. The run goes on at rollout {begin.first_rollout}."
    return Outcome([warn("resume", "CheckpointIncomplete", message)], facts)


def _facts(job: JobDocument, begin: Resume) -> dict[str, object] | None:
    if begin.checkpoint is None or begin.how not in (How.FULL, How.ADAPTER):
        return None
    return {"rolloutId": begin.first_rollout - 1, "path": on_volume(job, begin.checkpoint)}


def check_arguments(job: JobDocument, launch: MakeLaunch) -> Outcome:
    """I7, as far as our table of Miles' versions knows it; the image's own parser has the last word at the start."""
    try:
        _launched(job, launch)
    except ConfigurationError as error:
        return Outcome([refuse("I7", "ArgumentConflict", str(error))])
    return Outcome()


def check_models(job: JobDocument, launch: MakeLaunch) -> Outcome:
    """What the run loads beside `model.path`: converted weights, and a copy that the engines serve."""
    findings: list[Finding] = []
    if job.model.ref_load:
        remedy = "Put the converted weights on the models volume or correct model.refLoad."
        findings += model.check_directory(job.model.ref_load, remedy).findings
    try:
        for path in _launched(job, launch).models:
            findings += model.check_model(path, SERVED_REMEDY).findings
    except ConfigurationError:
        pass  # told by `check_arguments`
    return Outcome(findings)


def _launched(job: JobDocument, launch: MakeLaunch) -> Launch:
    place = Path("/nowhere")
    return launch(job, Start(attempt=1, incarnation=1, traces=place, checkpoints=place, files=place))
