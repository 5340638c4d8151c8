"""What lies on the volume, as the decision wants it (`resume`). Reads names, sizes and heads; writes nothing."""

import json
from pathlib import Path

from harborrl_trainer import index, layout
from harborrl_trainer.checkpoints import refuse_to_lose
from harborrl_trainer.errors import ConfigurationError
from harborrl_trainer.job import JobDocument
from harborrl_trainer.launch.context import training_gpus
from harborrl_trainer.layout import IncarnationId, RunLayout
from harborrl_trainer.miles_engine import plan as plans
from harborrl_trainer.miles_engine import sealing
from harborrl_trainer.miles_plan.resume import NO_RUN, Foreign, Found, How, Resume, decide


def keeps_data_state(job: JobDocument) -> bool:
    """Whether Miles saves its place in the data set: it does unless it is told to have no data set of its own."""
    return "--disable-rollout-global-dataset" not in f"{job.recipe_args} {job.extra_args}".split()


def beginning(job: JobDocument) -> tuple[list[Found], Resume]:
    """What the run has saved, and where its next incarnation begins; raises RestartAtZeroError, StorageError."""
    run = RunLayout.of(job)
    saved = in_run(run, data_state=keeps_data_state(job), ranks=training_gpus(job))
    claims = index.read_claims(run.index)
    own = decide(saved, claims, None)
    refuse_to_lose(job, [one.rollout for one in saved], own.first_rollout - 1 if own.checkpoint else None)
    return saved, own if own.checkpoint else decide(saved, claims, source_of(job))


def in_run(run: RunLayout, *, data_state: bool = True, ranks: int = 0) -> list[Found]:
    """Every `iter_*` of the run, oldest incarnation first.

    `data_state`: whether Miles saves its place in the data. `ranks`: those that save an adapter; 0: not known.
    """
    found = []
    for attempt, attempt_folder in _numbered(run.checkpoints, layout.attempt_of):
        for incarnation, _ in _numbered(attempt_folder, layout.incarnation_of):
            id_ = IncarnationId(attempt, incarnation)
            found += in_folder(run.incarnation(*id_).checkpoints, id_, data_state=data_state, ranks=ranks)
    return found


def in_folder(
    checkpoints: Path, id_: IncarnationId = NO_RUN, *, data_state: bool = True, ranks: int = 0
) -> list[Found]:
    return [_look(saved, checkpoints, id_, data_state, ranks) for saved in sealing.iterations(checkpoints)]


def _look(saved: sealing.Saved, checkpoints: Path, id_: IncarnationId, data_state: bool, ranks: int) -> Found:
    # What was sealed was whole; the tracker file that moved on since is no news of it.
    unsealed = "" if saved.sealed else sealing.weights_problem(checkpoints, saved.rollout, ranks=ranks)
    problem = sealing.damage(saved.path) if saved.sealed else unsealed
    return Found(
        id=id_,
        rollout=saved.rollout,
        path=saved.path,
        sealed=saved.sealed,
        damaged=(saved.path / sealing.DAMAGED_NOTE).exists(),
        problem=problem,
        data_problem=sealing.data_problem(checkpoints, saved.rollout) if data_state and not problem else "",
        adapter=(saved.path / "adapter").is_dir(),
        optimizer=sealing.holds_optimizer(saved.path),
    )


def source_of(job: JobDocument) -> Foreign | None:
    """What `resumeFrom` names: a run of ours, an `iter_*` directory, or a directory that Miles has saved to."""
    if job.resume_from is None:
        return None
    path, ranks = job.storage.checkpoints / job.resume_from.path, training_gpus(job)
    run = RunLayout(traces=path, checkpoints=path, trials=path)
    ours = in_run(run, ranks=ranks)
    if ours:
        return _of_run(path, ours)
    rollout = layout.checkpoint_of(path.name)
    if rollout is not None:
        named = [one for one in in_folder(path.parent, ranks=ranks) if one.path == path]
        return Foreign(found=_loadable(path, named))
    if sealing.tracker(path) == sealing.RELEASE:
        return Foreign(release=path)
    return Foreign(found=_loadable(path, in_folder(path, ranks=ranks)))


def _of_run(path: Path, ours: list[Found]) -> Foreign:
    best = decide(ours, index.read_claims(path / "index.json"), None)
    taken = [one for one in ours if one.path == best.checkpoint and best.how is not How.MODEL]
    return Foreign(found=_loadable(path, taken))


def _loadable(path: Path, found: list[Found]) -> Found:
    """The newest whole one; where there is none, the newest whose weights can be loaded: the data may be others."""
    usable = [one for one in found if not one.problem]
    if usable:
        return max(usable, key=lambda one: (one.whole, one.rollout))
    reason = f" ({found[-1].path.name}: {found[-1].problem})" if found else ""
    raise ConfigurationError(
        f"resumeFrom.path: {path} is no whole checkpoint of Miles and no run that has one{reason}; name another or "
        "remove resumeFrom"
    )


def ways_of(checkpoint: Path) -> dict[str, int]:
    """How the model was split that saved it: by its seal, else by the plan of its incarnation; empty: not known."""
    for file in (checkpoint / sealing.COMPLETE_MARK, checkpoint.parent.parent / layout.LAUNCH_FOLDER / plans.NAME):
        try:
            ways = json.loads(file.read_bytes())["ways"]
            return {str(name): int(size) for name, size in ways.items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
    return {}


def _numbered(folder: Path, number_of: layout.NameReader) -> list[tuple[int, Path]]:
    try:
        paths = list(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted((number, path) for path in paths if (number := number_of(path.name)) is not None)
