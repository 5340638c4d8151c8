"""What the API server refused and what broke in us, as conditions of the job that it concerns. Pure."""

from dataclasses import replace
from datetime import datetime

from harborrl_operator.clock import to_text
from harborrl_operator.conditions import Conditions
from harborrl_operator.constants import ConditionType, Reason
from harborrl_operator.errors import ClusterError
from harborrl_operator.models import HarborRLJob, JobStatus


def with_fault(job: HarborRLJob, error: Exception, now: datetime) -> JobStatus:
    """A bug of ours, said where the user looks; what runs goes on."""
    said = (
        f"The operator cannot judge this job: {type(error).__name__}: {error}. What runs goes on; it is"
        " tried again. Report this with the operator's log."
    )
    conditions = Conditions(job.status.conditions, job.generation, to_text(now))
    conditions.set(ConditionType.PROGRESSING, "Unknown", Reason.OPERATOR_ERROR, said)
    update = {"conditions": conditions.listed(), "reason": Reason.OPERATOR_ERROR.value, "message": said[:256]}
    return job.status.model_copy(update=update)


def without_fault(job: HarborRLJob) -> HarborRLJob:
    """So that the first pass that succeeds again begins without it."""
    kept = [condition for condition in job.status.conditions if condition.reason != Reason.OPERATOR_ERROR]
    return replace(job, status=job.status.model_copy(update={"conditions": kept}))


def with_failures(before: JobStatus, after: JobStatus, failures: list[ClusterError], now: datetime) -> JobStatus:
    """`after` with what the API server refused, in the condition of the part that it concerns.

    Transition times go by `before`: a refusal that lasts must not look new in every pass, or each pass would write.
    """
    if not failures or after.finished_at:
        return after
    concerned = {_concerned(error) for error in failures}
    carried = [condition for condition in before.conditions if condition.type in concerned]
    settled = [condition for condition in after.conditions if condition.type not in concerned]
    conditions = Conditions([*carried, *settled], after.observed_generation, to_text(now))
    for error in reversed(failures):
        message = f"The API server refused to {error}. It is tried again; correct what it names."
        if error.action == "list RayCluster" and error.is_absent:
            message += " Is KubeRay installed?"
        conditions.set(_concerned(error), "False", Reason.APPLY_FAILED, message)
    first = f"The API server refused to {failures[0]}."
    return after.model_copy(
        update={"conditions": conditions.listed(), "reason": Reason.APPLY_FAILED.value, "message": first[:256]}
    )


_ADMISSION = ("ConfigMap", "Pod", "PersistentVolumeClaim", "Namespace")
"""Kinds on which the preflight and the checks depend."""


def _concerned(error: ClusterError) -> ConditionType:
    kind = error.action.split()[1]
    if kind == "RayCluster":
        return ConditionType.TRAINER_READY
    return ConditionType.ADMITTED if kind in _ADMISSION else ConditionType.AGENT_SERVER_READY
