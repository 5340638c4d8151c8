"""What Kueue says of the RayCluster or pod that it holds back, in its own words: the conditions of its Workload.

Workloads are Kueue's: they are read where they are served, and never written.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from harborrl_operator.clock import from_text, seconds_since
from harborrl_operator.constants import ADMISSION_GATE, LABEL_QUEUE
from harborrl_operator.observed import KueueAnswer, Object, condition_of, is_terminating, labels, pod_phase

UNQUEUED_SECONDS = 60
"""Kueue suspends a RayCluster when it is made, and makes its Workload within a second or two."""

KUEUE_STUCK_SECONDS = 120
"""Kueue resumes what it has admitted within a second or two; a RayCluster that still waits after this long is stuck."""


@dataclass(frozen=True)
class Eviction:
    """Why Kueue took a quota back."""

    reason: str
    """Kueue's: Preempted, PodsReadyTimeout, ClusterQueueStopped, AdmissionCheck, …"""
    message: str


def queue_of(thing: Object) -> str:
    """The LocalQueue that the object is in, by its label: the job's, or one that Kueue gave it by default."""
    return labels(thing).get(LABEL_QUEUE, "")


def is_held_back(cluster: Object | None) -> bool:
    """Whether this is a RayCluster that Kueue, which owns its `suspend`, keeps from having pods."""
    return cluster is not None and bool(cluster.get("spec", {}).get("suspend"))


def was_never_held(cluster: Object) -> bool:
    """Whether nothing has suspended this RayCluster of a queue: Kueue's webhook does so before KubeRay sees one."""
    return bool(queue_of(cluster)) and not is_held_back(cluster) and not any(queue_changes(cluster, "False"))


def queue_without_effect(
    cluster: Object | None, answer: KueueAnswer | None, workload: Object | None, now: datetime
) -> str:
    """A sentence where a RayCluster of a queue started without Kueue; empty where all is well or nobody can tell."""
    if cluster is None or workload is not None or not was_never_held(cluster):
        return ""
    queue, name = queue_of(cluster), cluster["metadata"]["name"]
    if answer == "absent":
        return (
            f"Queue {queue} has no effect: this cluster serves no Workload of Kueue, so that nothing counts quota or"
            " starts the pods together. Install Kueue, or leave spec.queueName out."
        )
    if answer == "served" and seconds_since(cluster["metadata"]["creationTimestamp"], now) > UNQUEUED_SECONDS:
        return (
            f"Queue {queue} has no effect: Kueue has made no Workload for RayCluster {name}, so that nothing counts"
            " quota or starts the pods together. See whether Kueue runs, has ray.io/raycluster among its"
            " integrations.frameworks and manages this namespace (docs/kueue.md), or leave spec.queueName out."
        )
    return ""


def queue_changes(cluster: Object | None, suspended: str) -> Iterator[datetime]:
    """When Kueue took the RayCluster's quota (`True`) or let it start (`False`), as KubeRay says."""
    if cluster is None or is_terminating(cluster):
        return
    for condition in cluster.get("status", {}).get("conditions") or []:
        if condition["type"] in ("RayClusterSuspending", "RayClusterSuspended") and condition["status"] == suspended:
            yield from_text(condition["lastTransitionTime"])


def is_gated(pod: Object) -> bool:
    """Whether Kueue keeps the scheduler off this pod."""
    gates = pod.get("spec", {}).get("schedulingGates") or []
    return pod_phase(pod) == "Pending" and any(gate.get("name") == ADMISSION_GATE for gate in gates)


def admitted_too_long(workload: Object | None, now: datetime) -> str | None:
    """Since when Kueue counts as admitted what still waits; None where nothing is wrong."""
    admitted = _true(workload, "Admitted")
    since = admitted.get("lastTransitionTime") if admitted else None
    return since if since and seconds_since(since, now) > KUEUE_STUCK_SECONDS else None


def eviction(workload: Object | None) -> Eviction | None:
    """The last time that quota was taken back; Kueue takes it off again when it gives quota anew."""
    evicted = _true(workload, "Evicted")
    return Eviction(str(evicted.get("reason", "")), str(evicted.get("message", ""))) if evicted else None


def words(workload: Object | None) -> str:
    """One sentence of Kueue's about a Workload that waits, with what it waits for."""
    if workload is None:
        return "Kueue has made no Workload for it yet. Does Kueue run, and does the queue exist?"
    if workload["spec"].get("active") is False:
        said = eviction(workload)
        why = f" ({said.reason}: {said.message})" if said else ""
        return f"Kueue deactivated it{why}. Set spec.active of Workload {workload['metadata']['name']} to true."
    reserved = condition_of(workload, "QuotaReserved")
    if reserved is None:
        return "Kueue has not looked at it yet."
    if reserved["status"] != "True":
        return f"{reserved.get('reason', 'Pending')}: {str(reserved.get('message', '')).rstrip('.')}."
    if _true(workload, "Admitted") is None:
        return f"Quota is reserved; waits for {_checks(workload)}."
    return "Kueue has admitted it."


def _checks(workload: Object) -> str:
    listed = workload.get("status", {}).get("admissionChecks") or []
    open_ones = [check for check in listed if check.get("state") != "Ready"]
    if not open_ones:
        return "its admission"
    return "; ".join(f"admission check {c['name']} ({c.get('state')}: {c.get('message', '')})" for c in open_ones)


def _true(workload: Object | None, kind: str) -> Object | None:
    found = condition_of(workload, kind) if workload is not None else None
    return found if found is not None and found["status"] == "True" else None
