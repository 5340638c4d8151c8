"""Why a pod that the API server took does not start, in its own and its events' words, and what to do: pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from harborrl_agent_server.sandboxes.pods import Verdict

WAITING = {"Pending", "ContainerCreating", "PodInitializing"}
"""What the status says while something goes wrong that only events name."""

EVENTS = {
    "FailedMount": "VolumeNotMounted",
    "FailedAttachVolume": "VolumeNotMounted",
    "FailedCreatePodSandBox": "PodSandboxFailed",
    "NetworkNotReady": "PodSandboxFailed",
    "FailedScheduling": "Unschedulable",
}

PULL_SECRET = "FailedToRetrieveImagePullSecret"  # noqa: S105 - a reason's name

ADVICE: Sequence[tuple[str, str, str]] = (
    ("PullSecretMissing", "", "create that Secret in the sandbox namespace, or correct images.pullSecrets"),
    (
        "ImagePullFailed",
        "unauthorized|authentication|denied|forbidden|401|403",
        "the registry refuses us: name Secrets of the sandbox namespace in agentServer.sandbox.images.pullSecrets",
    ),
    (
        "ImagePullFailed",
        "not found|manifest unknown|404",
        "the registry has no such image: correct the task's docker_image or agentServer.sandbox.images",
    ),
    ("ImagePullFailed", "no space left|quota", "the node has no room for the image; make some or name other nodes"),
    ("ImagePullFailed", "", "check the image's name, its registry and agentServer.sandbox.images.pullSecrets"),
    ("InvalidImageName", "", "check the image's name: the task's docker_image or agentServer.sandbox.images"),
    ("ErrImageNeverPull", "", "the image is not on the node; load it there or let imagePullPolicy pull it"),
    ("Unschedulable", "Insufficient nvidia.com/gpu", "no node has as many free GPUs; lower gpus or add nodes"),
    (
        "Unschedulable",
        "node affinity|node selector",
        "too few nodes have the labels of sandbox.nodeSelector or nodeSelectorForGpu; correct them or add nodes",
    ),
    (
        "Unschedulable",
        "Insufficient.*untolerated taint|untolerated taint.*Insufficient",
        "lower the task's resources or --max-concurrent, add nodes, or tolerate the taints (sandbox.tolerations)",
    ),
    ("Unschedulable", "untolerated taint", "set agentServer.sandbox.tolerations for the nodes' taints, or add nodes"),
    ("Unschedulable", "", "lower the task's resources, add nodes, or lower --max-concurrent"),
    ("VolumeNotMounted", "", "what podOverrides mount is not there, or not for this node"),
    (
        "PodSandboxFailed",
        "runtime",
        "the node's container runtime has no handler for sandbox.runtimeClassName; install it or name other nodes",
    ),
    ("PodSandboxFailed", "", "the node cannot give the pod a network; look at the network plugin's log there"),
    ("CreateContainerConfigError", "", "a ConfigMap or Secret that podOverrides name is not there"),
    ("", "/bin/sh", "the image needs /bin/sh and tar"),
    ("OOMKilled", "", "the image needs more than the task's memory_mb to start"),
    ("Evicted", "", "its node had no room left; state memory_mb and storage_mb, or add nodes"),
    ("Deleted", "", "something deletes sandboxes: a drain, an eviction, a controller of quotas"),
    ("", "", "look at the pod's events in the sandbox namespace"),
)
"""Reason and words (both may be empty: any), then what to do; the first row that applies."""


def advice(verdict: Verdict) -> str:
    return next(
        text
        for reason, words, text in ADVICE
        if reason in {"", verdict.reason} and re.search(words, verdict.message, re.IGNORECASE)
    )


def told(verdict: Verdict, events: Sequence[Mapping[str, Any]]) -> Verdict:
    """The same verdict with what the pod's events add: the reason of a wait, or the secret behind a failed pull."""
    warnings = sorted((one for one in events if one.get("type") == "Warning"), key=moment)
    if verdict.reason == "ImagePullFailed":
        secret = next((one for one in reversed(warnings) if one.get("reason") == PULL_SECRET), None)
        if secret is not None:
            said = f"{verdict.message}; {secret.get('message', '')}"
            return replace(verdict, reason="PullSecretMissing", message=said)
    if verdict.reason not in WAITING or not warnings:
        return verdict
    last = warnings[-1]
    reason = str(last.get("reason") or verdict.reason)
    return replace(verdict, reason=EVENTS.get(reason, reason), message=str(last.get("message") or ""))


def moment(event: Mapping[str, Any]) -> str:
    """RFC 3339 in UTC, so texts compare; either API's field may be empty."""
    return str(event.get("lastTimestamp") or event.get("eventTime") or "")
