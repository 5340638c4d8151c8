"""What `agentServer.sandbox.podOverrides` may not say: a sandbox is the boundary between a policy and the cluster.

The agent server judges by it when it starts, the operator by a copy of it, so that nothing has to start.
"""

from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard

FORBIDDEN: Mapping[str, str] = {
    "hostNetwork": "it would put sandboxes on the node's network, where no policy holds",
    "hostPID": "it would show a sandbox the node's processes",
    "hostIPC": "it would share the node's memory segments with a sandbox",
    "hostUsers": "sandboxes take the cluster's default; a runtimeClassName isolates more",
    "shareProcessNamespace": "agents would see the processes of other containers",
    "serviceAccountName": "a sandbox has no identity in the cluster",
    "serviceAccount": "a sandbox has no identity in the cluster",
    "automountServiceAccountToken": "a sandbox has no identity in the cluster",
    "securityContext": "the server sets it, and it keeps a sandbox apart from the node",
    "ephemeralContainers": "they can be added to running pods only",
    "restartPolicy": "a sandbox that ended is over",
    "activeDeadlineSeconds": "set agentServer.sandbox.timeoutSeconds",
    "enableServiceLinks": "a sandbox is told nothing of the cluster",
    "nodeName": "it would go around the scheduler; use nodeSelector or affinity",
    "hostname": "pods of one name cannot run side by side",
    "subdomain": "sandboxes have no names in DNS",
    "hostAliases": "they pin the names that a task may reach",
    "resourceClaims": "devices come through limits of the container",
}
"""Fields of the pod and of its containers that stay as the server sets them, and why."""

OWN_CONTAINER: Mapping[str, str] = {
    "command": "it keeps the sandbox running",
    "args": "the server starts the sandbox",
    "image": "it comes from the task; set agentServer.sandbox.images",
    "lifecycle": "the server starts and ends the sandbox",
    "stdin": "the server starts the sandbox",
    "tty": "the server starts the sandbox",
}
"""Of the container `main` besides."""

VOLUMES = ("emptyDir", "configMap", "image", "persistentVolumeClaim", "ephemeral", "downwardAPI", "csi", "nfs")
"""Kinds that may be mounted: hostPath is the node's own disk, secret and projected carry what no agent may read."""

CONTAINERS = ("containers", "initContainers")


def override_fault(overrides: Mapping[str, Any]) -> str | None:
    """The first thing that a sandbox may not have: the field, and why. Null is no less than a value."""
    return next(problems(overrides), None)


def problems(pod: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"{field} may not be set: {FORBIDDEN[field]}" for field in pod if field in FORBIDDEN)
    for volume in _listed(pod, "volumes"):
        for kind in (key for key in volume if key not in {"name", *VOLUMES}):
            name = f"volumes.{volume.get('name')}.{kind}"
            yield f"{name} may not be mounted into a sandbox; one of {', '.join(VOLUMES)}"
    for field in CONTAINERS:
        if field in pod and not are_named(pod[field]):
            yield f"{field} must be a list of objects with a name each; the sandbox's own is main"
        for container in _listed(pod, field):
            yield from _container_faults(f"{field}.{container.get('name')}", container)


def _container_faults(where: str, container: Mapping[str, Any]) -> Iterator[str]:
    closed = {**FORBIDDEN, **(OWN_CONTAINER if where == "containers.main" else {})}
    yield from (f"{where}.{field} may not be set: {closed[field]}" for field in container if field in closed)
    if any(port.get("hostPort") for port in _listed(container, "ports")):
        yield f"{where}.ports.hostPort may not be set: nobody calls a sandbox"
    if _listed(container, "volumeDevices"):
        yield f"{where}.volumeDevices may not be set: block devices go around the sandbox's limits"
    for variable in _listed(container, "env"):
        source = variable.get("valueFrom")
        if isinstance(source, Mapping) and "secretKeyRef" in source:
            yield f"{where}.env.{variable.get('name')} reads a Secret: every agent could print it"
    if any("secretRef" in each for each in _listed(container, "envFrom")):
        yield f"{where}.envFrom reads a Secret: every agent could print it"


def _listed(holder: Mapping[str, Any], field: str) -> list[Mapping[str, Any]]:
    value = holder.get(field)
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def are_named(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list) and all(isinstance(each, Mapping) and "name" in each for each in value)
