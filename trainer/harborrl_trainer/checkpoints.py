"""Checkpoints of a run on disk, and where a new incarnation begins.

Each incarnation saves into its own folder and starts from the newest whole checkpoint of the run. A checkpoint that an
overtaken incarnation saved after its successor had begun belongs to no one and is passed over.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harborrl_trainer import index, layout
from harborrl_trainer.errors import ConfigurationError, RestartAtZeroError
from harborrl_trainer.index import Claim
from harborrl_trainer.job import JobDocument
from harborrl_trainer.layout import IncarnationId, RunLayout


@dataclass(frozen=True)
class Checkpoint:
    id: IncarnationId
    rollout: int
    """Last rollout id trained into it."""
    path: Path
    complete: bool
    saved_at: float | None = None
    """When it became whole, seconds since the epoch; None while it is not, or where nobody looked."""


@dataclass(frozen=True)
class StartPoint:
    first_rollout: int
    checkpoint: Path | None
    """Directory to load weights, optimizer and data position from; None: start from the model."""


def list_checkpoints(run_checkpoints: Path) -> list[Checkpoint]:
    """Every checkpoint directory below `<checkpoints>/<runPath>`, torn ones included, oldest incarnation first."""
    found = []
    for attempt, attempt_folder in _numbered(run_checkpoints, layout.attempt_of):
        for incarnation, folder in _numbered(attempt_folder, layout.incarnation_of):
            saved = _numbered(folder / "checkpoints", layout.checkpoint_of)
            found += [_checkpoint(IncarnationId(attempt, incarnation), rollout, path) for rollout, path in saved]
    return found


def _checkpoint(id_: IncarnationId, rollout: int, path: Path) -> Checkpoint:
    try:
        saved_at = (path / layout.COMPLETE_MARK).stat().st_mtime
    except (FileNotFoundError, NotADirectoryError):
        return Checkpoint(id_, rollout, path, complete=False)
    return Checkpoint(id_, rollout, path, complete=True, saved_at=saved_at)


def newest_complete(checkpoints: Sequence[Checkpoint], claims: Sequence[Claim]) -> Checkpoint | None:
    """The whole checkpoint to go on from: highest rollout id among those whose incarnation owns that id."""
    usable = [
        checkpoint
        for checkpoint in checkpoints
        if checkpoint.complete and index.owner(claims, checkpoint.rollout) in {checkpoint.id, None}
    ]
    return max(usable, key=lambda checkpoint: (checkpoint.rollout, checkpoint.id), default=None)


def find_start(job: JobDocument) -> StartPoint:
    """Where the next incarnation would begin. Looks only; `begin` also claims.

    A run's own checkpoint comes before `resumeFrom`, so that a second attempt does not fall back to the other run.
    """
    run = RunLayout.of(job)
    saved, claims = list_checkpoints(run.checkpoints), index.read_claims(run.index)
    own = newest_complete(saved, claims)
    if own is None:
        _refuse_to_forget(run, saved)
    refuse_to_lose(job, [one.rollout for one in saved], own.rollout if own else None)
    found = own or _foreign_start(job)
    return StartPoint(found.rollout + 1, found.path) if found else StartPoint(0, None)


def _refuse_to_forget(run: RunLayout, saved: Sequence[Checkpoint]) -> None:
    """Whole checkpoints of this very run that no claim lets us use: to begin anew beside them is no choice of ours."""
    whole = max((one for one in saved if one.complete), key=lambda one: (one.rollout, one.id), default=None)
    if whole is not None:
        raise RestartAtZeroError(
            f"{run.checkpoints}: the run would begin at rollout 0 although it has a whole checkpoint of rollout "
            f"{whole.rollout} ({whole.path.relative_to(run.checkpoints)}), which {run.index.name} gives to no one; "
            f"move {run.index.name} away to go on from it, or move the checkpoint away to begin anew"
        )


def refuse_to_lose(job: JobDocument, seen: Sequence[int], own: int | None) -> None:
    """Another volume, or one that was emptied. What was damaged on its own volume is still there, and not lost so.

    `seen`: rollout id of every checkpoint of the run, torn ones included; `own`: of the one it would go on from.
    """
    known = job.known_checkpoint
    if known is None or (own is not None and max(seen) >= known.rollout_id):
        return
    there = "there is no whole one" if own is None else f"its newest whole one is of rollout {own}"
    start = "rollout 0" if own is None else f"rollout {own + 1}"
    accept = "" if own is None else f" with resumeFrom.path: {job.run_path}"
    raise RestartAtZeroError(
        f"{RunLayout.of(job).checkpoints}: the run is known to have saved a checkpoint of rollout {known.rollout_id}"
        f"{f' ({known.path})' if known.path else ''}, but {there}, and it would begin at {start}; bring back the "
        f"volume that holds it (storage.checkpoints), or accept the loss: delete the job and apply it again{accept}"
    )


def begin(
    job: JobDocument,
    attempt: int,
    incarnation: int,
    *,
    optimizer: bool | None = None,
    set_aside: Sequence[Path] = (),
) -> StartPoint:
    """Where this incarnation begins, and its claim on every rollout id from there on.

    An engine calls this once, before its first rollout. Starting from 0 beside a whole checkpoint of the same run
    cannot happen this way. `optimizer` says whether the checkpoint holds the optimizer's state, `set_aside` which newer
    ones the engine found damaged; both are told to the user. Raises what `index.add_claim` and `find_start` raise.
    """
    start = find_start(job)
    claim = Claim(
        attempt=attempt,
        incarnation=incarnation,
        first_rollout=start.first_rollout,
        resumed_from=on_volume(job, start.checkpoint) if start.checkpoint else None,
        optimizer=optimizer if start.checkpoint else None,
        set_aside=tuple(on_volume(job, path) for path in set_aside),
    )
    index.add_claim(RunLayout.of(job).index, claim)
    return start


def on_volume(job: JobDocument, path: Path) -> str:
    """`path` below `storage.checkpoints`, as a claim names it."""
    return os.path.relpath(path, job.storage.checkpoints)


def _foreign_start(job: JobDocument) -> Checkpoint | None:
    """The checkpoint that `resumeFrom` names: a checkpoint directory itself, or a run's folder."""
    source = job.resume_from
    if source is None:
        return None
    path = job.storage.checkpoints / source.path
    rollout = layout.checkpoint_of(path.name)
    if rollout is not None and (path / layout.COMPLETE_MARK).is_file():
        return Checkpoint(IncarnationId(0, 0), rollout, path, complete=True)
    found = newest_complete(list_checkpoints(path), index.read_claims(path / "index.json"))
    if found is None:
        raise ConfigurationError(
            f"resumeFrom.path: {path} is no whole checkpoint and no run that has one; name another or remove resumeFrom"
        )
    return found


def _numbered(folder: Path, number_of: layout.NameReader) -> list[tuple[int, Path]]:
    try:
        paths = list(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    numbered = [(number, path) for path in paths if (number := number_of(path.name)) is not None]
    return sorted(numbered)
