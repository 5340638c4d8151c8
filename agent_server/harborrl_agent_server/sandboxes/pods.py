"""The sandbox pod: its manifest, its name, and what its status means. Pure."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from harborrl_agent_server.sandboxes import commands
from harborrl_agent_server.sandboxes.images import SandboxConfig
from harborrl_agent_server.sandboxes.override_rules import CONTAINERS
from harborrl_agent_server.sandboxes.overrides import placed
from harborrl_agent_server.settings import JobIdentity

CAPABILITIES = ["CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID"]
"""For a root shell to write anywhere, change owners and end any process; all within Pod Security `baseline`."""

FATAL_WAITS = {"InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError"}
"""Waiting reasons that time does not heal."""

PULL_WAITS = {
    "ErrImagePull",
    "ImagePullBackOff",
    "RegistryUnavailable",
    "ImageInspectError",
    "CreateContainerError",
    "RunContainerError",
}
"""Waiting reasons that a second attempt may heal."""

REASONS = {
    "ErrImagePull": "ImagePullFailed",
    "ImagePullBackOff": "ImagePullFailed",
    "RegistryUnavailable": "ImagePullFailed",
}


class State(Enum):
    PENDING = "pending"
    TROUBLED = "troubled"
    """Would be healed by a retry of the kubelet's; bounded by the pull grace."""
    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True)
class Verdict:
    state: State
    reason: str = ""
    message: str = ""
    own_limits: bool = False
    """Killed for what it used: memory or ephemeral storage."""
    by_itself: bool = False
    """Its first process was told to end by one of its own: nobody had asked the cluster for that."""


def judge(pod: dict[str, Any], *, gone: bool = False) -> Verdict:  # noqa: PLR0911 - a table
    """What a pod's status says about the sandbox; the first line that applies decides."""
    status = pod.get("status") or {}
    if status.get("reason") == "Evicted":
        # The kubelet says "exceeded" of the pod's own doing, and "low on resource" of the node's.
        text = status.get("message") or "evicted"
        return Verdict(State.FAILED, "Evicted", text, own_limits="exceed" in text)
    container = own_status(pod)
    ended = (container.get("state") or {}).get("terminated")
    if ended:
        reason = ended.get("reason") or "Terminated"
        text = f"the container ended with exit code {ended.get('exitCode')}. {ended.get('message') or ''}".strip()
        own_limits = reason == "OOMKilled" and memory_limited(pod)
        return Verdict(State.FAILED, reason, text, own_limits, by_itself=ended_by_itself(pod, ended))
    if status.get("phase") in {"Failed", "Succeeded"}:
        return Verdict(State.FAILED, status.get("reason") or status["phase"], status.get("message") or "the pod ended")
    if gone or pod["metadata"].get("deletionTimestamp"):
        return Verdict(State.FAILED, "Deleted", "somebody deleted the pod")
    if "running" in (container.get("state") or {}):
        return Verdict(State.READY)
    waiting = stuck(status.get("initContainerStatuses")) or (container.get("state") or {}).get("waiting") or {}
    if (reason := waiting.get("reason", "")) in FATAL_WAITS | PULL_WAITS:
        state = State.FAILED if reason in FATAL_WAITS else State.TROUBLED
        return Verdict(state, REASONS.get(reason, reason), waiting.get("message") or reason)
    for condition in status.get("conditions") or []:
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return Verdict(State.PENDING, condition.get("reason") or "Unschedulable", condition.get("message") or "")
    return Verdict(State.PENDING, waiting.get("reason") or "Pending", waiting.get("message") or "")


def own_container(pod: dict[str, Any]) -> dict[str, Any]:
    return next(iter((pod.get("spec") or {}).get("containers") or []), {})


def own_status(pod: dict[str, Any]) -> dict[str, Any]:
    """That of the sandbox's container, which its spec names first. The kubelet lists statuses in the order of names."""
    name = own_container(pod).get("name")
    listed = (pod.get("status") or {}).get("containerStatuses") or []
    return next((one for one in listed if name is None or one.get("name", name) == name), {})


def ended_by_itself(pod: dict[str, Any], ended: dict[str, Any]) -> bool:
    """Whether `kill 1` was said inside: process 1 ends with 0 when it is told to (`commands.IDLE`).

    Whoever deletes, evicts, preempts or drains a pod has that written on the pod first.
    """
    status = pod.get("status") or {}
    disrupted = any(condition["type"] == "DisruptionTarget" for condition in status.get("conditions") or [])
    told = pod["metadata"].get("deletionTimestamp") or status.get("reason") or disrupted
    return not told and ended.get("exitCode") == 0


def stuck(statuses: list[dict[str, Any]] | None) -> dict[str, Any] | None:
    """Why an init container does not start; the sandbox's own says no more than that it waits for it."""
    states = [(status.get("state") or {}).get("waiting") or {} for status in statuses or []]
    return next((state for state in states if state.get("reason") in FATAL_WAITS | PULL_WAITS), None)


def memory_limited(pod: dict[str, Any]) -> bool:
    """Without a limit of its own a container is killed for the memory of its node, which others may have taken."""
    return "memory" in ((own_container(pod).get("resources") or {}).get("limits") or {})


def sandbox_name(session_id: str) -> str:
    """`sb-<slug>-<hash>`: the same for the same trial and role, so that a creation in flight can be deleted by name."""
    digest = hashlib.sha256(session_id.encode()).hexdigest()[:10]
    slug = "".join(letter if letter.isalnum() else "-" for letter in session_id.lower()).strip("-")[:45].rstrip("-")
    return f"sb-{slug}-{digest}"


def labels_for(job: JobIdentity, role: str) -> dict[str, str]:
    own = {"app.kubernetes.io/managed-by": "harborrl", "harborrl.dev/role": role}
    if not job:
        return own
    return own | {
        "harborrl.dev/job": job.name,
        "harborrl.dev/job-namespace": job.namespace,
        "harborrl.dev/job-uid": job.uid,
    }


CONTEXT = {
    "runAsUser": 0,
    "runAsGroup": 0,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"], "add": CAPABILITIES},
    "seccompProfile": {"type": "RuntimeDefault"},
}

IMAGE_ASKED = "harborrl.dev/image"
"""Annotation: the image by the name that the task or the job gives it; what runs may be pinned to a digest."""

STAYS = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}

ALONE = {
    "restartPolicy": "Never",
    "terminationGracePeriodSeconds": 1,
    "automountServiceAccountToken": False,
    "enableServiceLinks": False,
}


def sandbox_pod(
    *,
    name: str,
    namespace: str,
    labels: dict[str, str],
    owner: dict[str, Any],
    image: str,
    resources: dict[str, dict[str, str]],
    life_s: float,
    config: SandboxConfig,
    extra: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Root inside the container, as task images and verifiers expect, and nothing of the cluster.

    No token, no service variables, no new privileges, only `CAPABILITIES`. The kubelet ends the pod after `life_s` even
    when every server is dead. `extra`: further fields of the pod's spec.
    """
    spec = {
        "containers": [_container(image, resources)],
        **ALONE,
        "activeDeadlineSeconds": int(life_s),
        "nodeSelector": config.node_selector,
        "tolerations": config.tolerations,
        "priorityClassName": config.priority_class_name,
        "runtimeClassName": config.runtime_class_name,
        "imagePullSecrets": [{"name": secret} for secret in config.images.pull_secrets],
        **(extra or {}),
    }
    spec = {key: value for key, value in spec.items() if value not in (None, {}, [])}
    meta = {"name": name, "namespace": namespace, "labels": labels, "annotations": STAYS, "ownerReferences": [owner]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": held(placed(spec, config.pod_overrides))}


def _container(image: str, resources: dict[str, dict[str, str]]) -> dict[str, Any]:
    return {
        "name": "main",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": [commands.SHELL, "-c", commands.IDLE],
        "resources": resources,
        "securityContext": CONTEXT,
    }


def held(spec: dict[str, Any]) -> dict[str, Any]:
    """Containers that overrides add may do no more than the sandbox's own."""
    kinds = {kind: [{**each, "securityContext": CONTEXT} for each in spec[kind]] for kind in CONTAINERS if kind in spec}
    return spec | kinds
