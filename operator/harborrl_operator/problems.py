"""Why a child does not start: what kubelet, scheduler and controllers report, as one verdict that says what to do."""

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from harborrl_operator.clock import seconds_since
from harborrl_operator.conditions import Verdict
from harborrl_operator.constants import Reason
from harborrl_operator.observed import (
    Object,
    condition_of,
    container_statuses,
    is_terminating,
    name_of,
    pod_phase,
)
from harborrl_operator.workloads import is_gated, queue_of

_PULL = {"ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError"}
_CONFIG = {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}

STUCK_SECONDS = 60
"""A pod that is scheduled but has not started its containers after this long is reported with its newest warning."""

SILENT_SECONDS = 30
"""KubeRay writes the status of a new RayCluster within seconds, also while it waits for a queue."""


def pod_problem(pod: Object, now: datetime, warning: str = "") -> Verdict | None:
    """The first thing that keeps this pod from running, None while it merely takes its time."""
    if is_terminating(pod):
        return None
    name = name_of(pod)
    unplaced = _unplaced(pod, now, warning)
    if unplaced:
        return unplaced
    for status in container_statuses(pod):
        verdict = _container_problem(name, status)
        if verdict:
            return verdict
    if pod_phase(pod) == "Failed":
        return Verdict(
            Reason.POD_FAILED,
            f"Pod {name} failed: {last_words(pod) or f'no message; `kubectl describe pod {name}` may tell more'}",
        )
    waiting = pod_phase(pod) == "Pending" and seconds_since(pod["metadata"]["creationTimestamp"], now) > STUCK_SECONDS
    if waiting and warning:
        return Verdict(Reason.POD_STUCK, f"Pod {name} has not started: {warning} (`kubectl describe pod {name}`)")
    return None


HELD_SECONDS = 10
"""Kueue gives a pod its quota within a second or two, where there is any."""


def _unplaced(pod: Object, now: datetime, warning: str) -> Verdict | None:
    """What keeps the pod from a node: Kueue, or the scheduler."""
    if is_gated(pod):
        age = seconds_since(pod["metadata"]["creationTimestamp"], now)
        return _held(name_of(pod), queue_of(pod), warning) if age > HELD_SECONDS else None
    scheduled = condition_of(pod, "PodScheduled")
    if scheduled and scheduled["status"] == "False" and scheduled.get("reason") == "Unschedulable":
        return Verdict(
            Reason.UNSCHEDULABLE,
            f"Pod {name_of(pod)} fits no node: {scheduled.get('message', '')} Lower its requests, correct its selectors"
            " or claims, or add nodes.",
        )
    return None


def _held(name: str, queue: str, said: str) -> Verdict:
    where = f"in LocalQueue {queue}" if queue else "and it is in no queue"
    remedy = "give that queue quota for cpu and memory" if queue else "make a LocalQueue `default` with cpu and memory"
    return Verdict(
        Reason.HELD_BY_QUEUE,
        f"Kueue holds back pod {name} {where}. {said} The trainer is queued only after it: {remedy}, apart from the"
        " queue of the GPUs, or take pods and Deployments of this namespace out of Kueue's management (docs/kueue.md).",
    )


def first_pod_problem(pods: Iterable[Object], now: datetime, warnings: Mapping[str, str]) -> Verdict | None:
    for pod in pods:
        verdict = pod_problem(pod, now, warnings.get(name_of(pod), ""))
        if verdict:
            return verdict
    return None


def _container_problem(pod: str, status: Mapping[str, Any]) -> Verdict | None:
    waiting = (status.get("state") or {}).get("waiting") or {}
    reason, said = waiting.get("reason", ""), waiting.get("message", "")
    if reason in _PULL:
        return Verdict(
            Reason.IMAGE_PULL_FAILED,
            f"Pod {pod} cannot get image {status['image']} ({reason}): {said or 'no further message'}. Correct the"
            " image's name or the pull secret.",
        )
    if reason in _CONFIG:
        return Verdict(
            Reason.CONTAINER_CONFIG_ERROR,
            f"Pod {pod} cannot start container {status['name']} ({reason}): {said}. Create what is missing or correct"
            " the reference.",
        )
    ended = (status.get("lastState") or {}).get("terminated") or {}
    # Between two crashes the container runs for a moment: that is no recovery until it is ready.
    if reason == "CrashLoopBackOff" or (ended.get("exitCode", 0) != 0 and not status.get("ready")):
        return Verdict(
            Reason.CRASH_LOOP,
            f"Container {status['name']} of pod {pod} keeps ending with exit code {ended.get('exitCode', '?')}:"
            f" {last_line(ended.get('message', '')) or ended.get('reason', 'no message')}"
            f" (`kubectl logs --previous {pod} -c {status['name']}`)",
        )
    return None


def deployment_problem(deployment: Object) -> Verdict | None:
    """Pods that the API server refuses to the Deployment (quota, pod security, webhooks)."""
    return _refusal_in("Deployment", deployment, "ReplicaFailure")


def ray_cluster_problem(cluster: Object) -> Verdict | None:
    """Pods that the API server refuses to KubeRay, and a cluster that KubeRay itself refuses."""
    verdict = _refusal_in("RayCluster", cluster, "ReplicaFailure")
    if verdict:
        return verdict
    status = cluster.get("status", {})
    if status.get("reason") and status.get("state") == "failed":
        return Verdict(Reason.PODS_REFUSED, f"RayCluster {name_of(cluster)}: {status['reason']}")
    return None


def kuberay_silence(cluster: Object, now: datetime) -> Verdict | None:
    """A cluster that KubeRay has not looked at: its operator is down, or does not watch this namespace."""
    created = cluster["metadata"]["creationTimestamp"]
    if cluster.get("status") or seconds_since(created, now) <= SILENT_SECONDS:
        return None
    return Verdict(
        Reason.KUBERAY_SILENT,
        f"KubeRay has not looked at RayCluster {name_of(cluster)} since {created}. See whether its operator runs and"
        " watches this namespace: kubectl get deployments --all-namespaces | grep kuberay-operator",
    )


def _refusal_in(kind: str, thing: Object, condition: str) -> Verdict | None:
    failure = condition_of(thing, condition)
    if not failure or failure["status"] != "True":
        return None
    said = str(failure.get("message") or failure.get("reason", ""))
    return Verdict(
        Reason.PODS_REFUSED,
        f"{kind} {name_of(thing)} may not create its pods: {said.rstrip('. ')}. {_remedy(said)}",
    )


def _remedy(refusal: str) -> str:
    """By what the API server's admission plugins write; a webhook may write anything."""
    if "violates PodSecurity" in refusal:
        alone = (
            "Set trainer.rdma.lockMemory: false if RDMA works without it, or have" if "IPC_LOCK" in refusal else "Have"
        )
        return (
            f"{alone} an administrator label the namespace pod-security.kubernetes.io/enforce=privileged, or take out"
            " of podOverrides what it names."
        )
    if "exceeded quota" in refusal:
        return "Raise the quota or lower the requests."
    if "failed quota" in refusal:
        return "Set what the quota counts: trainer.resources, agentServer.resources."
    return "Correct what it names, or ask whoever runs the admission rule or webhook that says so."


def last_words(pod: Object) -> str:
    """The last line that a container of an ended pod left behind, else the pod's own message."""
    for status in reversed(container_statuses(pod)):
        ended = (status.get("state") or {}).get("terminated") or {}
        if ended.get("exitCode", 0) != 0:
            return last_line(ended.get("message", "")) or f"exit code {ended['exitCode']} ({ended.get('reason', '')})"
    return str(pod.get("status", {}).get("message", ""))


_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
"""Colours and the like (ECMA-48), which programs write into logs."""


def last_line(text: str) -> str:
    text = _ESCAPE.sub("", text)
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    return lines[-1] if lines else ""
