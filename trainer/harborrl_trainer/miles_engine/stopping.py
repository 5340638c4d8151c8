"""When Miles is told to save and when it is ended: decided step by step over what is seen, with no clock of its own.

Miles looks for its save trigger once a rollout, after training on it, saves, and removes the file. So a stop takes up
to one rollout, unless all that was trained is saved already: then there is nothing to wait for.
"""

from dataclasses import dataclass
from enum import Enum

GIVE_AGAIN_SECONDS = 60.0
"""Miles took the trigger and no whole checkpoint came of it: asked once more after this time."""


class Act(Enum):
    NOTHING = "nothing"
    GIVE = "give"
    """Create the save trigger."""
    TAKE_BACK = "take back"
    """Remove the save trigger: nobody wants a stop any more."""
    END_SAVED = "end, saved"
    END_UNSAVED = "end, unsaved"


@dataclass(frozen=True)
class Seen:
    """Rollout ids are -1 where there is none."""

    now: float
    """Seconds, monotonic."""
    requested: bool
    """`save-and-stop` exists."""
    trigger: bool
    """The save trigger exists."""
    sealed: int
    """Newest rollout with a whole checkpoint, what this incarnation began from included."""
    trained: int | None
    """Newest rollout that was trained on, likewise; None where this version of Miles does not tell."""


class Stopping:
    def __init__(self, *, has_trigger: bool, grace_seconds: float) -> None:
        self._has_trigger = has_trigger
        self._grace = grace_seconds
        self._told: float | None = None
        self._since: float | None = None
        self._before = -1
        self._given = float("-inf")

    @property
    def wanted(self) -> bool:
        return self._since is not None

    def tell(self, now: float) -> None:
        """SIGTERM: from here on there is the grace period and no more."""
        self._told = now if self._told is None else self._told

    def step(self, seen: Seen) -> Act:
        if not seen.requested and self._told is None:
            self._since = None
            return Act.TAKE_BACK if seen.trigger else Act.NOTHING
        if self._since is None:
            self._since, self._before, self._given = seen.now, seen.sealed, float("-inf")
        if self._is_saved(seen):
            return Act.END_SAVED
        if self._told is not None and seen.now - self._since >= self._grace:
            return Act.END_UNSAVED
        if self._has_trigger and not seen.trigger and seen.now - self._given >= GIVE_AGAIN_SECONDS:
            self._given = seen.now
            return Act.GIVE
        return Act.NOTHING

    def _is_saved(self, seen: Seen) -> bool:
        """A trigger that is still there may be in use: Miles removes it when all is written."""
        if seen.trained is not None and seen.trained <= seen.sealed:
            return True
        return seen.sealed > self._before and not seen.trigger
