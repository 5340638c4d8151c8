"""PodDisruptionBudgets: `kubectl drain` and autoscalers wait for a job instead of ending its attempt."""

from typing import Any

from harborrl_operator.constants import LABEL_JOB_UID, LABEL_ROLE, Role
from harborrl_operator.resolve import ResolvedJob
from harborrl_operator.resources.common import metadata


def budgets(job: ResolvedJob) -> list[dict[str, Any]]:
    """No pod that works may be evicted; one that is broken may.

    Of pods that a RayCluster controls, which has no scale, a budget can only say how many must stay.
    """
    trainer = _budget(job, Role.TRAINER, {"minAvailable": job.spec.trainer.nodes})
    if job.spec.agent_server.url:
        return [trainer]
    return [trainer, _budget(job, Role.AGENT_SERVER, {"maxUnavailable": 0})]


def _budget(job: ResolvedJob, role: Role, bound: dict[str, int]) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(job.job, job.job.names.disruption(role), role),
        "spec": {
            **bound,
            "selector": {"matchLabels": {LABEL_JOB_UID: job.job.uid, LABEL_ROLE: role.value}},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }
