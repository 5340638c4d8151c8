"""Checkpoints: written beside their place, verified, renamed; the mark of completeness is the last file written."""

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harborrl_trainer import checkpoints, files, index, leftovers
from harborrl_trainer.checkpoints import StartPoint
from harborrl_trainer.layout import COMPLETE_MARK, IncarnationId, IncarnationLayout, RunLayout
from harborrl_trainer.writing import writing

DATA_STATE = "data_state.json"
DRAWN = "sample_group_index"
OPTIMIZER = "optimizer.pt"
DAMAGED_NOTE = "damaged.txt"


@contextmanager
def under_construction(layout: IncarnationLayout, rollout: int) -> Iterator[Path]:
    """The directory of `prepare`; it goes when the block fails, so that what was cut does not keep the volume full."""
    directory = layout.checkpoints / _name(rollout)
    try:
        with writing(layout.checkpoints):
            prepare(layout, rollout)
        yield directory
    except Exception:
        shutil.rmtree(directory, ignore_errors=True)
        raise


def prepare(layout: IncarnationLayout, rollout: int) -> Path:
    """An empty directory in which the checkpoint of `rollout` is put together; no reader takes it for one."""
    directory = layout.checkpoints / _name(rollout)
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    return directory


def _name(rollout: int) -> str:
    return f".iter_{rollout:07d}.tmp"


def finish(layout: IncarnationLayout, rollout: int, directory: Path, data_state: Mapping[str, Any]) -> Path:
    """Seals what the policy wrote to `directory` and puts it in place; the tracker file follows."""
    with writing(layout.checkpoints):
        return _seal(layout, rollout, directory, data_state)


def _seal(layout: IncarnationLayout, rollout: int, directory: Path, data_state: Mapping[str, Any]) -> Path:
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


def prune(run: RunLayout, mine: IncarnationId, keep: int) -> list[Path]:
    """Removes what the run no longer needs once its newest checkpoint is verified; returns what went.

    Of the whole checkpoints that the run can go on from, `keep` stay, whichever incarnation saved them. What an earlier
    incarnation left torn, damaged or overtaken goes too. An incarnation that has been overtaken itself removes nothing.
    """
    claims = index.read_claims(run.index)
    saved = checkpoints.list_checkpoints(run.checkpoints)
    newest = checkpoints.newest_complete(saved, claims)
    if newest is None or problem(newest.path) or any(claim.id > mine for claim in claims):
        return []
    usable = sorted(
        (one for one in saved if one.complete and index.owner(claims, one.rollout) in {one.id, None}),
        key=lambda one: (one.rollout, one.id),
    )
    kept = {one.path for one in usable[-keep:]}
    gone = [one.path for one in saved if one.path not in kept and one.id <= mine and one.rollout <= newest.rollout]
    for path in gone:
        # The mark goes first: a removal that is interrupted must not leave something that looks whole.
        (path / COMPLETE_MARK).unlink(missing_ok=True)
        shutil.rmtree(path)
    leftovers.clear(run, mine)
    return gone


def prompts_drawn(start: StartPoint, batch_size: int) -> int:
    """Where in the order of prompts a run goes on; a checkpoint that does not say was made at this batch size."""
    if start.checkpoint is None:
        return 0
    try:
        return int(json.loads((start.checkpoint / DATA_STATE).read_text())[DRAWN])
    except (FileNotFoundError, KeyError):
        return start.first_rollout * batch_size
