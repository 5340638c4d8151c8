"""When the work of an incarnation ended: as its last report or its head pod says, else bounded by what was last known.

An operator that was away finds a head gone; GPUs that others have had since then are no loss of this job.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from harborrl_operator.clock import from_text
from harborrl_operator.draft import Draft
from harborrl_operator.fates import ended_at
from harborrl_operator.heads import is_heads, is_known_head, successor
from harborrl_operator.observed import Object, head_pod
from harborrl_operator.progress import FINAL_STATES


@dataclass(frozen=True)
class End:
    at: datetime
    is_seen: bool = True
    """Else an estimate."""


def work_end(draft: Draft, at_latest: datetime | None = None) -> End:
    """Of the current incarnation. `at_latest`: when nothing of it can have run any more, where that is known."""
    final = _final_report(draft)
    if final is not None:
        return End(min(final, draft.now))
    pods = draft.observed.pods_of_attempt(draft.attempt)
    head = head_pod(pods)
    if head is not None and successor(draft) is None:
        return End(draft.now)
    ended = _end_of_head(draft, pods)
    if ended is not None:
        return End(min(from_text(ended), draft.now))
    if at_latest is not None:
        return End(min(at_latest, draft.now), is_seen=False)
    return End(_last_sign_of_life(draft), is_seen=False)


def _end_of_head(draft: Draft, pods: Iterable[Object]) -> str | None:
    """As its pod tells, or told while it could be seen."""
    fate = draft.trainer.fate
    for pod in pods:
        if is_known_head(draft.trainer, pod):
            return ended_at(pod)
    return fate.ended_at if fate is not None and is_heads(draft.trainer, fate) else None


def _final_report(draft: Draft) -> datetime | None:
    """It is written at once."""
    progress = draft.progress
    if progress is None or progress.driver.state not in FINAL_STATES or not progress.observed_at:
        return None
    return from_text(progress.observed_at)


def _last_sign_of_life(draft: Draft) -> datetime:
    """Status is copied from the report and outlives it. With no sign at all nothing is known to have been done."""
    rollout, checkpoint = draft.value("rollout"), draft.value("checkpoint")
    signs = (
        draft.progress.observed_at if draft.progress else None,
        rollout.last_dump_time if rollout else None,
        checkpoint.saved_at if checkpoint else None,
        draft.trainer.running_since,
    )
    return min(max((from_text(sign) for sign in signs if sign), default=draft.now), draft.now)
