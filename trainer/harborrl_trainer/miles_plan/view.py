"""The directory that Miles loads from: links to one checkpoint, with a tracker file that names it.

Not the directory that the checkpoint was saved to: its tracker may name a newer, torn one, and an overtaken incarnation
may still move it. Not `--ckpt-step` either: Miles reads that for the reference model too, which has no such iteration.
"""

import os
import shutil
from pathlib import Path

from harborrl_trainer import files
from harborrl_trainer.errors import StorageError
from harborrl_trainer.miles_engine import sealing
from harborrl_trainer.miles_plan.resume import How, Resume


def make_view(view: Path, resume: Resume, base: Path) -> None:
    """`base`: the weights under an adapter, the directory that its first incarnation loaded (`--ref-load`).

    An adapter's view looks like `base` with Miles' place in the data set beside: Miles reads both below one `--load`.
    Raises StorageError on a volume that takes no links.
    """
    if resume.checkpoint is None or resume.how not in (How.FULL, How.ADAPTER):
        raise ValueError(f"nothing to look at: {resume.how}")
    if view.exists():
        shutil.rmtree(view)
    view.mkdir(parents=True)
    rollout = resume.first_rollout - 1
    try:
        if resume.how is How.ADAPTER:
            for entry in sorted(base.iterdir()):
                if entry.name != "rollout":
                    (view / entry.name).symlink_to(entry)
        else:
            _link(view / resume.checkpoint.name, resume.checkpoint)
            files.replace(view / sealing.TRACKER, f"{rollout}\n")
        if resume.data_state:
            (view / "rollout").mkdir()
            state = sealing.data_state(resume.checkpoint.parent, rollout)
            _link(view / "rollout" / state.name, state)
    except OSError as error:
        raise StorageError(
            f"{view}: cannot link to the checkpoint ({error.strerror}); the checkpoints volume must take symbolic links"
        ) from error


def _link(place: Path, target: Path) -> None:
    """Relative: the volume may be looked at from elsewhere."""
    place.symlink_to(os.path.relpath(target, place.parent))
