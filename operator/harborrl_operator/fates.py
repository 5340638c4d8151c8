"""What befell a trainer pod: killed for memory, evicted, preempted, its node gone, deleted, or ended by itself."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from harborrl_operator.clock import from_text, seconds_since
from harborrl_operator.constants import Cause
from harborrl_operator.models.status import FateStatus
from harborrl_operator.observed import (
    Object,
    condition_of,
    container_statuses,
    is_terminating,
    name_of,
    pod_phase,
    uid_of,
)
from harborrl_operator.problems import last_words

UNCONFIRMED_SECONDS = 60
"""Beyond the end of a pod's grace period: by then a node that lives has confirmed that the pod is over."""

_DISRUPTIONS = {
    "PreemptionByScheduler": Cause.PREEMPTED,
    "DeletionByTaintManager": Cause.NODE_LOST,
    "DeletionByPodGC": Cause.NODE_LOST,
    "EvictionByEvictionAPI": Cause.EVICTED,
}
"""Reasons of the pod condition DisruptionTarget; a kubelet's own (TerminationByKubelet) is told by the pod's reason."""
_POD_REASONS = {
    "Evicted": Cause.EVICTED,
    "NodeLost": Cause.NODE_LOST,
    "NodeShutdown": Cause.NODE_SHUTDOWN,
    "Terminated": Cause.NODE_SHUTDOWN,
    "Shutdown": Cause.NODE_SHUTDOWN,
    "Preempting": Cause.PREEMPTED,
}
_SAID = {
    Cause.OOM_KILLED: "was killed for memory: raise trainer.resources.limits.memory",
    Cause.EVICTED: "was evicted",
    Cause.PREEMPTED: "was preempted by a pod of higher priority",
    Cause.NODE_LOST: "was lost with its node",
    Cause.NODE_SHUTDOWN: "ended because its node shut down",
    Cause.POD_DELETED: "was deleted",
    Cause.CONTAINER_FAILED: "ended",
}


def fate_of(pod: Object, now: datetime) -> FateStatus | None:
    """None while the pod lives."""
    cause = _cause(pod, now)
    if cause is None:
        return None
    node = pod["spec"].get("nodeName")
    on = f" on node {node}" if node else ""
    words = _words(pod, cause)
    said = f"Pod {name_of(pod)}{on} {_SAID[cause]}" + (f": {words}" if words else ".")
    return FateStatus(
        cause=cause, pod=name_of(pod), uid=uid_of(pod), node=node, message=said[:400], ended_at=ended_at(pod)
    )


def ended_at(pod: Object) -> str | None:
    """When the last container ended, else when the kubelet ends what has not ended by then."""
    end: str | None = max(_ends(pod), default=None) or pod["metadata"].get("deletionTimestamp")
    return end


def _ends(pod: Object) -> list[str]:
    """Of the containers that have ended."""
    states = [(status.get("state") or {}).get("terminated") or {} for status in container_statuses(pod)]
    return [str(state["finishedAt"]) for state in states if state.get("finishedAt")]


def _words(pod: Object, cause: Cause) -> str:
    """What a container said last explains its own end only; of one that was ended from outside it is some line."""
    if cause is Cause.CONTAINER_FAILED:
        return last_words(pod)
    disruption = condition_of(pod, "DisruptionTarget") or {}
    return str(pod.get("status", {}).get("message") or disruption.get("message", ""))


def first_fate(pods: Iterable[Object], now: datetime) -> FateStatus | None:
    """The one that explains most: a deletion explains least, since each of the others ends in one."""
    fates = [fate for pod in pods if (fate := fate_of(pod, now)) is not None]
    return min(fates, key=lambda fate: fate.cause in (Cause.POD_DELETED, Cause.CONTAINER_FAILED), default=None)


def is_unconfirmed(pod: Object, now: datetime) -> bool:
    """Told to end, and its node has not said that it has: the node is cut off or gone."""
    ends = pod["metadata"].get("deletionTimestamp")
    return ends is not None and seconds_since(ends, now) > UNCONFIRMED_SECONDS


def _cause(pod: Object, now: datetime) -> Cause | None:
    if any(_was_killed_for_memory(status) for status in container_statuses(pod)):
        return Cause.OOM_KILLED
    disruption = condition_of(pod, "DisruptionTarget")
    if disruption and disruption["status"] == "True" and disruption.get("reason") in _DISRUPTIONS:
        return _DISRUPTIONS[disruption["reason"]]
    reason = pod.get("status", {}).get("reason", "")
    if reason in _POD_REASONS:
        return _POD_REASONS[reason]
    if is_unconfirmed(pod, now):
        return Cause.NODE_LOST
    if pod_phase(pod) in ("Failed", "Succeeded") and not _ended_by_deletion(pod):
        return Cause.CONTAINER_FAILED
    return Cause.POD_DELETED if is_terminating(pod) else None


def _ended_by_deletion(pod: Object) -> bool:
    """Whether each container that ended did so after somebody had asked for the pod's end."""
    if not is_terminating(pod):
        return False
    metadata = pod["metadata"]
    grace = timedelta(seconds=metadata.get("deletionGracePeriodSeconds") or 0)
    asked = from_text(metadata["deletionTimestamp"]) - grace
    return all(from_text(end) >= asked for end in _ends(pod))


def _was_killed_for_memory(status: Object) -> bool:
    ends = [(status.get(state) or {}).get("terminated") or {} for state in ("state", "lastState")]
    return any(end.get("reason") == "OOMKilled" for end in ends)
