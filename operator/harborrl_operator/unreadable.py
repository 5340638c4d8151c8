"""The status of a job whose spec or status this version cannot read: what stands there stays, and the fault is said."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from harborrl_operator.conditions import Conditions
from harborrl_operator.constants import ConditionType, Phase, Reason
from harborrl_operator.models.status import Condition


def unreadable_status(before: Mapping[str, Any], generation: int, message: str, now: str) -> dict[str, Any]:
    """`before`, as it came from the API server, with `Admitted` false; a job that has ended keeps its verdict."""
    found = list(before.get("conditions") or [])
    previous = [one for one in found if one.get("type") == ConditionType.ADMITTED]
    conditions = Conditions(filter(None, map(_readable, previous)), generation, now)
    conditions.set(ConditionType.ADMITTED, "False", Reason.INVALID_SPEC, message)
    (admitted,) = conditions.listed()
    kept = [one for one in found if one.get("type") != ConditionType.ADMITTED]
    status = {
        **before,
        "conditions": [admitted.model_dump(by_alias=True, mode="json"), *kept],
        "observedGeneration": generation,
        "phase": before.get("phase", Phase.REFUSED.value),
    }
    if before.get("finishedAt"):
        return status
    return {**status, "reason": Reason.INVALID_SPEC.value, "message": message[:256]}


def _readable(condition: Mapping[str, Any]) -> Condition | None:
    try:
        return Condition.model_validate(condition)
    except ValidationError:
        return None
