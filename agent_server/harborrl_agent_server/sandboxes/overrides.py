"""`agentServer.sandbox.podOverrides`: what of a pod's spec may be said there, and how it is merged. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard

FORBIDDEN = {
    "hostNetwork": "it would put sandboxes on the node's network, where no policy holds",
    "hostPID": "it would show a sandbox the node's processes",
    "hostIPC": "it would share the node's memory segments with a sandbox",
    "hostUsers": "sandboxes take the cluster's default; a runtimeClassName isolates more",
    "shareProcessNamespace": "agents would see the processes of other containers",
    "serviceAccountName": "a sandbox has no identity in the cluster",
    "serviceAccount": "a sandbox has no identity in the cluster",
    "automountServiceAccountToken": "a sandbox has no identity in the cluster",
    "securityContext": "the server sets it, and sandboxes are told apart from the node by it",
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
"""Fields of the pod or of its containers that stay as the server sets them, and why."""

OWN_CONTAINER = {
    "command": "it keeps the sandbox running",
    "args": "the server starts the sandbox",
    "image": "it comes from the task; set agentServer.sandbox.images",
    "name": "the server's commands go there",
    "lifecycle": "the server starts and ends the sandbox",
    "stdin": "the server starts the sandbox",
    "tty": "the server starts the sandbox",
}
"""Of the container `main` besides."""

VOLUMES = ("emptyDir", "configMap", "image", "persistentVolumeClaim", "ephemeral", "downwardAPI", "csi", "nfs")
"""Kinds that may be mounted. hostPath is the node's own disk, secret and projected carry what no agent may read."""

CONTAINERS = ("containers", "initContainers")


def checked(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The same overrides; raises ValueError with one line for the first that a sandbox may not have."""
    for problem in problems(overrides):
        raise ValueError(problem)
    return dict(overrides)


def problems(overrides: Mapping[str, Any]) -> Iterator[str]:
    for field in overrides:
        if field in FORBIDDEN:
            yield f"{field} may not be set: {FORBIDDEN[field]}"
    for volume in listed(overrides, "volumes"):
        kinds = [key for key in volume if key != "name"]
        for kind in kinds:
            if kind not in VOLUMES:
                name = f"volumes.{volume.get('name')}.{kind}"
                yield f"{name} may not be mounted into a sandbox; one of {', '.join(VOLUMES)}"
    for kind in CONTAINERS:
        if kind in overrides and not _are_named(overrides[kind]):
            yield f"{kind} must be a list of objects with a name each; the sandbox's own is main"
        for container in listed(overrides, kind):
            yield from _container_problems(f"{kind}.{container.get('name')}", container)


def _container_problems(where: str, container: Mapping[str, Any]) -> Iterator[str]:
    closed = FORBIDDEN | (OWN_CONTAINER if where == "containers.main" else {})
    for field, why in closed.items():
        if field in container and field != "name":
            yield f"{where}.{field} may not be set: {why}"
    for port in listed(container, "ports"):
        if port.get("hostPort"):
            yield f"{where}.ports.hostPort may not be set: nobody calls a sandbox"
    if listed(container, "volumeDevices"):
        yield f"{where}.volumeDevices may not be set: block devices go around the sandbox's limits"
    for variable in listed(container, "env"):
        if "secretKeyRef" in (variable.get("valueFrom") or {}):
            yield f"{where}.env.{variable.get('name')} reads a Secret: every agent could print it"
    if any("secretRef" in each for each in listed(container, "envFrom")):
        yield f"{where}.envFrom reads a Secret: every agent could print it"


def merged(base: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Objects merge, lists of named things merge by name, all else is replaced: as for the other pods of a job."""
    out = dict(base)
    for key, value in overrides.items():
        before = out.get(key)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            out[key] = merged(before, value)
        elif _are_named(value) and _are_named(before):
            wanted = {each["name"]: each for each in value}
            out[key] = [*(merged(each, wanted.pop(each["name"], {})) for each in before), *wanted.values()]
        else:
            out[key] = value
    return out


def listed(thing: Mapping[str, Any], field: str) -> list[Mapping[str, Any]]:
    value = thing.get(field)
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def _are_named(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list) and all(isinstance(each, Mapping) and "name" in each for each in value)
