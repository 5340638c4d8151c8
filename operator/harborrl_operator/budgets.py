"""How many failures of each class a job may have, how long it pauses after one, which are not worth another try."""

import re
from dataclasses import dataclass
from datetime import datetime

from harborrl_operator.clock import seconds_since
from harborrl_operator.constants import Cause, Reason
from harborrl_operator.models.spec import RetrySpec
from harborrl_operator.models.status import AttemptStatus, FailureCounts
from harborrl_operator.progress import FailureClass

FINAL_REASON: dict[FailureClass, Reason] = {
    "configuration": Reason.CONFIGURATION_FAILURE,
    "storage": Reason.STORAGE_FAILURE,
    "infrastructure": Reason.INFRASTRUCTURE_FAILURE,
    "application": Reason.APPLICATION_FAILURE,
}

FIRST_BACKOFF_SECONDS, LONGEST_BACKOFF_SECONDS = 15.0, 600.0
_PAUSES: dict[FailureClass, tuple[float, float]] = {
    "infrastructure": (FIRST_BACKOFF_SECONDS, LONGEST_BACKOFF_SECONDS),
    "application": (60.0, 1800.0),
    "storage": (300.0, 3600.0),
}
"""First and longest pause: a node is soon replaced, a person who makes room takes longer."""


def backoff(failures: int, first: float = FIRST_BACKOFF_SECONDS, longest: float = LONGEST_BACKOFF_SECONDS) -> float:
    """Seconds to wait after the n-th failure: doubled each time, bounded."""
    return min(first * 2.0 ** min(max(failures - 1, 0), 30), longest)


@dataclass(frozen=True)
class Budget:
    """Of one class: what is spent with this failure, and what there was."""

    failure: FailureClass
    spent: int
    limit: int

    @property
    def is_spent(self) -> bool:
        return self.spent >= self.limit

    @property
    def pause(self) -> float:
        return backoff(self.spent, *_PAUSES[self.failure])


RECOVERY_SECONDS = 86_400
"""A run that trains and saves for a day between two failures is not one that fails over and over."""


def recovered(counts: FailureCounts, kept: int, now: datetime) -> FailureCounts:
    """The counts before a failure at `now`: those of the infrastructure are forgiven to a run that went on since.

    `kept`: rollouts in its newest complete checkpoint. Bugs and full volumes are forgiven to nobody.
    """
    last = counts.infrastructure_at
    if last is None or kept <= counts.infrastructure_kept or seconds_since(last, now) < RECOVERY_SECONDS:
        return counts
    return counts.model_copy(update={"infrastructure": 0})


def charge(failure: FailureClass, counts: FailureCounts, retries: RetrySpec) -> tuple[FailureCounts, Budget]:
    """Count one more failure. A configuration error has no budget: no retry heals it."""
    match failure:
        case "configuration":
            return counts, Budget(failure, 1, 1)
        case "infrastructure":
            limit = retries.max_attempts
        case "application":
            limit = retries.max_application_failures
        case "storage":
            limit = retries.max_storage_failures
    spent = getattr(counts, failure) + 1
    return counts.model_copy(update={failure: spent}), Budget(failure, spent, limit)


_MET_AGAIN = (Cause.OUT_OF_MEMORY, Cause.OOM_KILLED)


def is_same_wall(before: AttemptStatus | None, now: AttemptStatus) -> bool:
    """Whether two attempts in a row ended alike at the same rollout, by what a third one would meet too."""
    if before is None or before.at_rollout != now.at_rollout or before.failure_class != now.failure_class:
        return False
    if now.failure_class != "application" and now.cause not in _MET_AGAIN:
        return False
    return before.cause == now.cause and _gist(before.message) == _gist(now.message)


def _gist(message: str) -> str:
    """Without the numbers, addresses and pod names that differ each time."""
    return re.sub(r"0x[0-9a-f]+|[-\w.]*\d[-\w.]*", "#", message)
