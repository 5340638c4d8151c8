"""Which incarnation this head pod's life is, and whether its driver is still to be submitted.

The emptyDir of the pod remembers its incarnation: written before the submission, so that a supervisor that died between
the two submits the same id again (which Ray takes once), and marked after it, so that a driver which Ray has forgotten
is never mistaken for one that was never submitted.
"""

import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from harborrl_trainer import files, layout
from harborrl_trainer.layout import IncarnationId, RunLayout


@dataclass(frozen=True)
class PodLife:
    """What this pod's earlier supervisors left: its incarnation, and whether Ray has taken the driver."""

    incarnation: int
    submitted: bool


@dataclass(frozen=True)
class Follow:
    """Ray knows the driver of this incarnation."""

    incarnation: int


@dataclass(frozen=True)
class Submit:
    """Submit the driver of this incarnation; None: claim the next free one first."""

    incarnation: int | None


@dataclass(frozen=True)
class Lost:
    """Ray once took the driver of this incarnation and does not know it now."""

    incarnation: int


type Start = Follow | Submit | Lost


def decide_start(life: PodLife | None, known: Collection[str], job_name: str, attempt: int) -> Start:
    """`known`: the submission ids of this Ray cluster, which is exactly as old as this pod."""
    if life is not None:
        if layout.submission_id(job_name, attempt, life.incarnation) in known:
            return Follow(life.incarnation)
        return Lost(life.incarnation) if life.submitted else Submit(life.incarnation)
    ours = [layout.incarnation_of_submission(submission, job_name, attempt) for submission in known]
    newest = max((number for number in ours if number is not None), default=None)
    return Submit(None) if newest is None else Follow(newest)


def claim_next(run: RunLayout, attempt: int) -> IncarnationId:
    """The next free incarnation of the attempt, made ours by creating its directory. Durable when this returns.

    Two claimants cannot get the same number: creating a directory succeeds for one of them.
    """
    taken = [
        number
        for root in (run.checkpoints, run.traces, run.trials)
        for path in _children(root / f"a{attempt}")
        if (number := layout.incarnation_of(path.name)) is not None
    ]
    candidate = max(taken, default=0) + 1
    while not _create(run.checkpoints / f"a{attempt}" / f"i{candidate}"):
        candidate += 1
    mine = run.incarnation(attempt, candidate)
    for folder in (mine.checkpoints, mine.rollout_data, mine.train_data, mine.trials):
        folder.mkdir(parents=True, exist_ok=True)
    return mine.id


def read_life(marks: Path) -> PodLife | None:
    try:
        stored = json.loads((marks / _LIFE).read_bytes())
    except FileNotFoundError:
        return None
    return PodLife(int(stored["incarnation"]), bool(stored["submitted"]))


def write_life(marks: Path, life: PodLife) -> None:
    text = json.dumps({"incarnation": life.incarnation, "submitted": life.submitted})
    files.replace(marks / _LIFE, text)


_LIFE = "incarnation.json"


def _create(folder: Path) -> bool:
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        folder.mkdir()
    except FileExistsError:
        return False
    for level in (folder.parent, folder.parent.parent):
        files.sync_directory(level)
    return True


def _children(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
