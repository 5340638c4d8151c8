"""Checkpoints: written beside their place, verified, renamed; the mark of completeness is the last file written."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harborrl_trainer import files
from harborrl_trainer.checkpoints import StartPoint
from harborrl_trainer.layout import COMPLETE_MARK, IncarnationLayout, RunLayout, checkpoint_of

DATA_STATE = "data_state.json"
DRAWN = "sample_group_index"
OPTIMIZER = "optimizer.pt"
DAMAGED_NOTE = "damaged.txt"


def prepare(layout: IncarnationLayout, rollout: int) -> Path:
    """An empty directory in which the checkpoint of `rollout` is put together; no reader takes it for one."""
    directory = layout.checkpoints / f".iter_{rollout:07d}.tmp"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    return directory


def finish(layout: IncarnationLayout, rollout: int, directory: Path, data_state: Mapping[str, Any]) -> Path:
    """Seals what the policy wrote to `directory` and puts it in place; the tracker file follows."""
    files.replace(directory / DATA_STATE, json.dumps(data_state, indent=1))
    for path in directory.iterdir():
        files.sync(path)  # the mark must not outlive, in a loss of power, what it vouches for
    sizes = {path.name: path.stat().st_size for path in sorted(directory.iterdir())}
    files.replace(directory / COMPLETE_MARK, json.dumps({"rollout_id": rollout, "files": sizes}, indent=1))
    place = layout.checkpoint(rollout)
    if place.exists():
        shutil.rmtree(place)
    directory.rename(place)
    files.sync_directory(layout.checkpoints)
    files.replace(layout.latest_checkpoint, f"{rollout}\n")
    return place


def problem(directory: Path) -> str:
    """What is wrong with a checkpoint that bears the mark; empty when each file has the size it was sealed with.

    A volume that does not answer is an OSError and not the checkpoint's fault: it may answer tomorrow.
    """
    try:
        sealed = json.loads((directory / COMPLETE_MARK).read_text())["files"]
        wrong = [name for name, size in sealed.items() if (directory / name).stat().st_size != size]
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"cannot be verified ({error})"
    return f"{wrong[0]} has not the size it was sealed with" if wrong else ""


def set_aside(start: StartPoint, reason: str) -> None:
    """Takes the mark from a damaged checkpoint, so that the next search falls back to the one before it."""
    if start.checkpoint is None:
        raise ValueError("there is no checkpoint to set aside")
    (start.checkpoint / DAMAGED_NOTE).write_text(reason + "\n")
    (start.checkpoint / COMPLETE_MARK).unlink()


def were_set_aside(run: RunLayout) -> bool:
    """Whether this run had checkpoints that turned out damaged: with none left, it must not begin anew in silence."""
    return any(run.checkpoints.glob(f"a*/i*/checkpoints/iter_*/{DAMAGED_NOTE}"))


def prune(layout: IncarnationLayout, keep: int) -> list[int]:
    """Removes this incarnation's oldest checkpoints beyond `keep`, if the newest is whole; returns what went.

    Other incarnations' checkpoints stay: only the operator knows that nobody reads them any more.
    """
    rollouts = sorted(
        rollout for path in layout.checkpoints.iterdir() if (rollout := checkpoint_of(path.name)) is not None
    )
    if not rollouts or problem(layout.checkpoint(rollouts[-1])):
        return []
    gone = rollouts[:-keep]
    for rollout in gone:
        # The mark goes first: a removal that is interrupted must not leave something that looks whole.
        (layout.checkpoint(rollout) / COMPLETE_MARK).unlink(missing_ok=True)
        shutil.rmtree(layout.checkpoint(rollout))
    return gone


def prompts_drawn(start: StartPoint, batch_size: int) -> int:
    """Where in the order of prompts a run goes on; a checkpoint that does not say was made at this batch size."""
    if start.checkpoint is None:
        return 0
    try:
        return int(json.loads((start.checkpoint / DATA_STATE).read_text())[DRAWN])
    except (FileNotFoundError, KeyError):
        return start.first_rollout * batch_size
