"""What the API server refused and what broke in us, as conditions of the job that it concerns. Pure."""

import traceback
from datetime import datetime
from pathlib import Path

from harborrl_operator.clock import to_text
from harborrl_operator.conditions import Conditions
from harborrl_operator.constants import ConditionType, Phase, Reason
from harborrl_operator.errors import ClusterError, NameTakenError, UnsupportedFieldError
from harborrl_operator.models import JobStatus


def with_fault(before: JobStatus, error: Exception, generation: int, now: datetime) -> JobStatus:
    """What a pass that failed by our own fault leaves behind; the next good pass judges the condition anew.

    Never the error's text: it may hold anything, and the log has it.
    """
    if before.finished_at:
        return before
    said = (
        f"The operator failed on this job: {type(error).__name__} in {_place(error)}. What runs goes on; nothing is"
        " decided until it is mended. The operator's log has the traceback: please report it."
    )
    conditions = Conditions(before.conditions, generation, to_text(now))
    conditions.set(ConditionType.PROGRESSING, "Unknown", Reason.OPERATOR_ERROR, said)
    update = {"conditions": conditions.listed(), "reason": Reason.OPERATOR_ERROR.value, "message": said[:256]}
    return before.model_copy(update=update)


def _place(error: Exception) -> str:
    """The innermost of our own functions."""
    ours = [frame for frame in traceback.extract_tb(error.__traceback__) if "harborrl_operator" in frame.filename]
    return f"{Path(ours[-1].filename).stem}.{ours[-1].name}" if ours else "a library"


def with_failures(before: JobStatus, after: JobStatus, failures: list[ClusterError], now: datetime) -> JobStatus:
    """`after` with what the API server refused, in the condition of the part that it concerns.

    Transition times go by `before`: a refusal that lasts must not look new in every pass, or each pass would write.
    After the end the verdict stays, and TrainerReady says what could not be released.
    """
    if not failures:
        return after
    if after.finished_at:
        return _still_held(before, after, failures, now)
    concerned = {_concerned(error, after) for error in failures}
    carried = [condition for condition in before.conditions if condition.type in concerned]
    settled = [condition for condition in after.conditions if condition.type not in concerned]
    conditions = Conditions([*carried, *settled], after.observed_generation, to_text(now))
    for error in reversed(failures):
        message = f"The API server refused to {error}. It is tried again; correct what it names."
        if isinstance(error, UnsupportedFieldError | NameTakenError):
            message = f"Not sent: {error}. It is tried again."
        if error.action == "list RayCluster" and error.is_absent:
            message += " Is KubeRay installed?"
        conditions.set(_concerned(error, after), "False", _reason(error), message)
    first = f"The API server refused to {failures[0]}."
    return after.model_copy(
        update={"conditions": conditions.listed(), "reason": _reason(failures[0]).value, "message": first[:256]}
    )


def _still_held(before: JobStatus, after: JobStatus, failures: list[ClusterError], now: datetime) -> JobStatus:
    conditions = Conditions(before.conditions, after.observed_generation, to_text(now))
    said = f"The API server refused to {'; to '.join(map(str, failures))}. It is tried again; until then this is held."
    conditions.set(ConditionType.TRAINER_READY, "False", Reason.APPLY_FAILED, said)
    held = next(one for one in conditions.listed() if one.type is ConditionType.TRAINER_READY)
    settled = [held if one.type is held.type else one for one in after.conditions]
    return after.model_copy(update={"conditions": settled})


def _reason(error: ClusterError) -> Reason:
    if isinstance(error, NameTakenError):
        return Reason.NAME_TAKEN
    return Reason.UNKNOWN_TO_KUBERAY if isinstance(error, UnsupportedFieldError) else Reason.APPLY_FAILED


_ADMISSION = ("ConfigMap", "Pod", "PersistentVolumeClaim", "Namespace", "NetworkPolicy", "EndpointSlice")
"""Kinds on which the preflight and the checks depend."""


def _concerned(error: ClusterError, after: JobStatus) -> ConditionType:
    """One that the next pass judges anew: of a job that is being suspended, only this one is."""
    if isinstance(error, NameTakenError):
        return ConditionType.ADMITTED
    if after.phase in (Phase.SUSPENDING, Phase.SUSPENDED):
        return ConditionType.SUSPENDED
    kind = error.action.split()[1]
    if kind == "RayCluster":
        return ConditionType.TRAINER_READY
    return ConditionType.ADMITTED if kind in _ADMISSION else ConditionType.AGENT_SERVER_READY
