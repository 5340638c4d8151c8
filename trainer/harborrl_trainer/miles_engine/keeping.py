"""Which checkpoints stay (`checkpoint.keep`): decided over plain values, and the removal."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from harborrl_trainer.miles_engine import sealing
from harborrl_trainer.miles_engine.plan import Retention


def to_remove(rule: Retention, own: Sequence[tuple[int, str]]) -> list[str]:
    """Directories that are needed no longer, given the whole checkpoints of this incarnation (rollout id, directory).

    The newest `keep` stay, whichever incarnation saved them. Before this one has a whole checkpoint nothing goes.
    """
    if not own:
        return []
    ordered = sorted([*rule.older, *own], key=lambda one: one[0])
    gone = [path for _, path in ordered[: -rule.keep]]
    return [path for path in (*gone, *rule.leftovers) if path != rule.loaded]


def overtaken(index: Path, attempt: int, incarnation: int) -> bool:
    """Whether a later incarnation has claimed the run. An index that cannot be read is nobody's leave to delete."""
    try:
        claims = json.loads(index.read_bytes())["claims"]
        return any((int(one["attempt"]), int(one["incarnation"])) > (attempt, incarnation) for one in claims)
    except (OSError, ValueError, KeyError, TypeError):
        return True


def remove(place: Path) -> None:
    """The mark first: a removal that is cut short must not leave something that looks whole."""
    (place / sealing.COMPLETE_MARK).unlink(missing_ok=True)
    shutil.rmtree(place, ignore_errors=True)
    number = place.name.partition("_")[2]
    if number.isdecimal():
        sealing.data_state(place.parent, int(number)).unlink(missing_ok=True)
