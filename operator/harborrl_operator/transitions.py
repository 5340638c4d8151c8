"""Events: one for each change of phase, and one for each condition that turns against the user."""

from dataclasses import dataclass

from harborrl_operator.constants import ConditionType, Phase, Reason
from harborrl_operator.models import Condition, JobStatus

_GOOD_WHEN_TRUE = (ConditionType.ADMITTED, ConditionType.AGENT_SERVER_READY, ConditionType.TRAINER_READY)
_BAD_WHEN_TRUE = (ConditionType.CAPACITY_TIGHT, ConditionType.STALLED, ConditionType.LOW_SPACE)
_BAD_REASONS = (
    Reason.CHECKPOINT_MISSED,
    Reason.RESUMED_FROM_OLDER_CHECKPOINT,
    Reason.RESUMED_WITHOUT_OPTIMIZER,
    Reason.RESTARTING_IN_PLACE,
)
"""Of conditions that are no trouble by themselves."""
_BAD_PHASES = (Phase.REFUSED, Phase.FAILED)
_QUIET = ("NotStarted", "Starting", "Released", "Queued", "AwaitingPreflight")
"""Reasons of a False condition that are part of an ordinary life."""


@dataclass(frozen=True)
class Transition:
    """What an Event says."""

    kind: str
    """`Normal` or `Warning`."""
    reason: str
    message: str


def transitions(before: JobStatus, after: JobStatus) -> list[Transition]:
    """Nothing for an unchanged status: events never repeat by the clock."""
    out: list[Transition] = []
    if before.phase != after.phase or not before.conditions:
        is_bad = after.phase in _BAD_PHASES or after.reason in (*_BAD_REASONS, Reason.APPLY_FAILED)
        kind = "Warning" if is_bad else "Normal"
        out.append(Transition(kind, after.reason, f"{after.phase}: {after.message}"))
    if after.attempt != before.attempt:
        out.append(Transition("Warning", "AttemptFailed", after.message))
    if after.reason == Reason.OPERATOR_ERROR and before.reason != after.reason:
        out.append(Transition("Warning", after.reason, after.message))
    earlier = {condition.type: condition for condition in before.conditions}
    for condition in after.conditions:
        then = earlier.get(condition.type)
        if then is not None and (then.status, then.reason) == (condition.status, condition.reason):
            continue
        if condition.type in _GOOD_WHEN_TRUE and condition.status == "True" and not _is_bad(condition):
            out.append(Transition("Normal", f"{condition.type}", condition.message))
        elif _is_bad(condition):
            out.append(Transition("Warning", condition.reason, f"{condition.type}: {condition.message}"))
    return list({transition.reason: transition for transition in reversed(out)}.values())[::-1]


def _is_bad(condition: Condition) -> bool:
    if condition.reason in _BAD_REASONS:
        return True
    if condition.type in _BAD_WHEN_TRUE:
        return condition.status == "True"
    if condition.reason == Reason.ROLLOUT_BLOCKED:
        return True  # the old version serves, and yet somebody has to act
    return condition.type in _GOOD_WHEN_TRUE and condition.status == "False" and condition.reason not in _QUIET
