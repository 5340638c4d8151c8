"""Sandboxes of kubernetes-sigs/agent-sandbox, as this server asks for them and reads them: pure. Its API is v1beta1.

A SandboxClaim names a SandboxWarmPool, which makes Sandboxes from a SandboxTemplate; it gets one of them, or a new one
when none is ready.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from harborrl_agent_server.sandboxes.images import quantity
from harborrl_agent_server.sandboxes.network import LABEL, NO_NETWORK
from harborrl_agent_server.sandboxes.pods import State, Verdict

CORE = "agents.x-k8s.io/v1beta1"
EXTENSIONS = "extensions.agents.x-k8s.io/v1beta1"

POD_NAME = "agents.x-k8s.io/pod-name"
"""Annotation of a Sandbox; without it the pod has the Sandbox's name."""

LAUNCH_TYPE = "agents.x-k8s.io/launch-type"
"""Label of a Sandbox: `warm` when it came from the pool."""

HOPELESS = {
    "TemplateNotFound",
    "WarmPoolNotFound",
    "InvalidMetadata",
    "ClaimExpired",
    "SandboxExpired",
    "PodFailed",
    "PodSucceeded",
}
"""Reasons of `Ready: False` that no waiting within a trial's start changes."""


def claim(manifest: Mapping[str, Any], pool: str, expires: datetime) -> dict[str, Any]:
    """For the trial of this pod. It carries the pod's labels, by which a restarted server finds it."""
    meta = manifest["metadata"]
    return {
        "apiVersion": EXTENSIONS,
        "kind": "SandboxClaim",
        "metadata": {name: meta[name] for name in ("name", "namespace", "labels", "ownerReferences")},
        "spec": {
            "warmPoolRef": {"name": pool},
            "lifecycle": {"shutdownTime": expires.strftime("%Y-%m-%dT%H:%M:%SZ"), "shutdownPolicy": "Delete"},
        },
    }


def own_pool(
    name: str, template: str, size: int, labels: Mapping[str, str], owner: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "apiVersion": EXTENSIONS,
        "kind": "SandboxWarmPool",
        "metadata": {"name": name, "labels": dict(labels), "ownerReferences": [dict(owner)]},
        "spec": {"replicas": size, "sandboxTemplateRef": {"name": template}},
    }


def pool_of(template: str, pools: Iterable[Mapping[str, Any]]) -> str | None:
    """The largest pool of the template that somebody else has made."""
    fitting = [
        (-pool["spec"].get("replicas", 1), pool["metadata"]["name"])
        for pool in pools
        if pool["spec"]["sandboxTemplateRef"]["name"] == template and "deletionTimestamp" not in pool["metadata"]
    ]
    return min(fitting)[1] if fitting else None


def judge_claim(claim: Mapping[str, Any], *, gone: bool = False) -> Verdict:
    if gone or claim["metadata"].get("deletionTimestamp"):
        return Verdict(State.FAILED, "Deleted", "somebody deleted the claim, or it expired")
    conditions = (claim.get("status") or {}).get("conditions") or []
    ready = next((one for one in conditions if one["type"] == "Ready"), None)
    if ready is None:
        return Verdict(State.PENDING, "ClaimPending", "the controller of agent-sandbox has not answered the claim")
    if ready["status"] == "True":
        return Verdict(State.READY)
    state = State.FAILED if ready["reason"] in HOPELESS else State.PENDING
    return Verdict(state, ready["reason"], ready.get("message") or "")


def sandbox_of(claim: Mapping[str, Any]) -> str:
    """Empty until the controller has given it one."""
    name: str = ((claim.get("status") or {}).get("sandbox") or {}).get("name") or ""
    return name


def pod_of(sandbox: Mapping[str, Any]) -> str:
    meta = sandbox["metadata"]
    name: str = (meta.get("annotations") or {}).get(POD_NAME) or meta["name"]
    return name


def came_warm(sandbox: Mapping[str, Any]) -> bool:
    return (sandbox["metadata"].get("labels") or {}).get(LAUNCH_TYPE) == "warm"


def disagreements(template: Mapping[str, Any], manifest: Mapping[str, Any]) -> list[str]:
    """What the template fixes and the trial's pod would have otherwise, in words; empty: they agree."""
    made = template["spec"]["podTemplate"]
    fixed, wanted = made["spec"], manifest["spec"]
    labels = (made.get("metadata") or {}).get("labels") or {}
    network = manifest["metadata"]["labels"].get(LABEL)
    return [
        *_of_container(fixed["containers"][0], wanted["containers"][0]),
        *_of_network(labels.get(LABEL), network),
        *_of_placement(fixed, wanted),
    ]


def _of_container(container: Mapping[str, Any], asked: Mapping[str, Any]) -> list[str]:
    found = []
    if container.get("image") != asked["image"]:
        found.append(differs("image", container.get("image"), asked["image"]))
    for kind in ("requests", "limits"):
        has = (container.get("resources") or {}).get(kind) or {}
        wants = (asked.get("resources") or {}).get(kind) or {}
        found += [differs(f"{kind}.{name}", has.get(name), amount) for name, amount in differing(has, wants)]
    return found


def _of_network(has: str | None, wants: str | None) -> list[str]:
    if wants not in (None, NO_NETWORK[LABEL]):
        return ["its network is restricted for the trial alone, which no template can be"]
    return [] if has == wants else [differs(f"label {LABEL}", has, wants)]


def _of_placement(fixed: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    found = []
    if (runtime := wanted.get("runtimeClassName")) not in (None, fixed.get("runtimeClassName")):
        found.append(differs("runtimeClassName", fixed.get("runtimeClassName"), runtime))
    nodes = fixed.get("nodeSelector") or {}
    for name, value in (wanted.get("nodeSelector") or {}).items():
        if nodes.get(name) != value:
            found.append(differs(f"nodeSelector {name}", nodes.get(name), value))
    return found


def differing(has: Mapping[str, Any], wants: Mapping[str, Any]) -> Sequence[tuple[str, Any]]:
    return [
        (name, amount)
        for name, amount in wants.items()
        if name not in has or quantity(str(has[name])) != quantity(str(amount))
    ]


def differs(what: str, has: Any, wants: Any) -> str:
    return f"{what} is {'unset' if has is None else has}, the task's {'unset' if wants is None else wants}"
