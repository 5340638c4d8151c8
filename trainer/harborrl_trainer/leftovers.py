"""What a save that was cut off left on the checkpoints volume, and its removal: garbage must not keep a volume full."""

import shutil
from pathlib import Path

from harborrl_trainer import layout
from harborrl_trainer.layout import IncarnationId, RunLayout

IDLE_SECONDS = 120.0
"""A directory in which nothing was written for this long is in nobody's hands. As long as `checkpoint.graceSeconds`
gives a head that is ending to save: its attempt may be over for the operator while it still writes."""


def unfinished(run: RunLayout, before: IncarnationId) -> list[Path]:
    """Directories in which incarnations earlier than `before` were putting a checkpoint together."""
    return [
        path
        for path in sorted(run.checkpoints.glob("a*/i*/checkpoints/.iter_*.tmp"))
        if (id_ := _incarnation(path.parents[1])) is not None and id_ < before
    ]


def clear(run: RunLayout, before: IncarnationId, *, idle_since: float | None = None) -> list[Path]:
    """Removes what `unfinished` finds; returns what went. Best effort: what cannot be removed stays.

    `idle_since` (seconds since the epoch) spares what was written to later than that.
    """
    old = [path for path in unfinished(run, before) if idle_since is None or _last_write(path) < idle_since]
    for path in old:
        shutil.rmtree(path, ignore_errors=True)
    return [path for path in old if not path.exists()]


def _last_write(folder: Path) -> float:
    """Infinite for what changes while we look."""
    try:
        return max(path.stat().st_mtime for path in (folder, *folder.iterdir()))
    except OSError:
        return float("inf")


def _incarnation(folder: Path) -> IncarnationId | None:
    attempt, incarnation = layout.attempt_of(folder.parent.name), layout.incarnation_of(folder.name)
    return None if attempt is None or incarnation is None else IncarnationId(attempt, incarnation)
