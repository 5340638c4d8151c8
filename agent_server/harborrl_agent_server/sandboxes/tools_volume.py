"""The tools bundle in a sandbox pod: its image mounted where nodes can do that, else copied by an init container."""

import asyncio
import copy
import hashlib
import logging
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any

from harborrl_agent_server.agents.tools import BUNDLE, Part
from harborrl_agent_server.bounded import alone
from harborrl_agent_server.errors import SandboxStartError
from harborrl_agent_server.sandboxes.images import quantity

LOG = logging.getLogger(__name__)

VOLUME = "harborrl-tools"

COPIED_BYTES = {"terminal": 64 * 2**20, "all": 512 * 2**20}
"""What a copy may take of the pod's ephemeral storage; the task's own limit is raised by it."""

UNMOUNTED = {"CreateContainerError", "RunContainerError", "StartError", "ContainerCannotRun", "Error"}
"""How a pod ends on a node that takes the volume for something else, or runs nothing from it."""

TRIES = 3
"""A try that ends otherwise (image not pulled in time, full quota) says nothing and is made again with a later pod."""


class Way(Enum):
    COPY = "copy"
    """Works on every node; costs each pod the time of a copy."""
    IMAGE = "image"
    """Costs nothing. Needs Kubernetes 1.33 and containerd 2.1 or CRI-O 1.31, and a runtime that lets it be executed."""


class ToolsVolume:
    """Gives pods the bundle. It is copied until a try has shown that a node runs programs from a mounted image."""

    def __init__(self, image: str | None) -> None:
        self._image = image
        self.way = Way.COPY
        self.trying: asyncio.Task[None] | None = None
        """The newest try; done when it has ended."""
        self._tries_left = TRIES

    def mounted(
        self, manifest: dict[str, Any], part: Part | None, attempt: Callable[[dict[str, Any]], Awaitable[None]]
    ) -> dict[str, Any]:
        """The pod with the bundle, when there is one and the agent needs it; else as it is.

        `attempt` starts a pod and removes it, and raises `SandboxStartError`. It runs beside this pod.
        """
        if not self._image or part is None:
            return manifest
        if self._tries_left and (self.trying is None or self.trying.done()):
            self._tries_left -= 1
            self.trying = alone(self._try(attempt, probe_pod(manifest, self._image)))
        if self.way is Way.IMAGE:
            return with_image_volume(manifest, self._image)
        return with_copy(manifest, self._image, part)

    def failed(self, error: SandboxStartError) -> None:
        """A pod did not start: where nodes differ, one of them may not mount images.

        Only the reason that a node gives before it runs anything counts: the others may be the task's own image.
        """
        if self.way is Way.IMAGE and error.reason == "CreateContainerError":
            LOG.warning("the tools bundle is copied from now on, for a node did not mount its image: %s", error)
            self.way = Way.COPY

    async def _try(self, attempt: Callable[[dict[str, Any]], Awaitable[None]], pod: dict[str, Any]) -> None:
        try:
            await attempt(pod)
        except SandboxStartError as error:
            LOG.info("the tools bundle is copied into each sandbox, for its image could not be mounted: %s", error)
            if error.reason in UNMOUNTED:
                self._tries_left = 0
        else:
            LOG.info("the tools bundle is mounted as a volume of its image")
            self._tries_left, self.way = 0, Way.IMAGE


def with_image_volume(manifest: dict[str, Any], image: str) -> dict[str, Any]:
    pod = copy.deepcopy(manifest)
    _attach(pod, {"image": {"reference": image, "pullPolicy": "IfNotPresent"}})
    return pod


def with_copy(manifest: dict[str, Any], image: str, part: Part) -> dict[str, Any]:
    """The init container asks for what the sandbox asks for, which costs a pod nothing: they never run together."""
    pod = copy.deepcopy(manifest)
    _attach(pod, {"emptyDir": {}})
    container = pod["spec"]["containers"][0]
    pod["spec"]["initContainers"] = [
        *pod["spec"].get("initContainers", []),
        {
            "name": "tools",
            "image": image,
            "imagePullPolicy": "IfNotPresent",
            "command": ["/bin/copy-tools", "/target", part],
            "volumeMounts": [{"name": VOLUME, "mountPath": "/target"}],
            "resources": _plain(container.get("resources") or {}),
            "securityContext": _stripped(),
        },
    ]
    limits = (container.get("resources") or {}).get("limits") or {}
    if "ephemeral-storage" in limits:
        limits["ephemeral-storage"] = str(int(quantity(limits["ephemeral-storage"])) + COPIED_BYTES[part])
    return pod


def probe_pod(manifest: dict[str, Any], image: str) -> dict[str, Any]:
    """A pod on the sandboxes' nodes that runs a program from a volume of the bundle's image.

    The program does not start where the volume stays empty, nor where nothing on it may be executed.
    """
    pod = with_image_volume(manifest, image)
    owner = pod["metadata"]["name"]
    pod["metadata"]["name"] = f"sb-tools-{hashlib.sha256(owner.encode()).hexdigest()[:16]}"
    container = pod["spec"]["containers"][0]
    container |= {
        "image": image,
        "command": ["/probe/libexec/busybox", "sleep", "600"],
        "env": [],
        "volumeMounts": [{"name": VOLUME, "mountPath": "/probe", "readOnly": True}],
        "resources": _plain(container.get("resources") or {}),
    }
    pod["spec"]["activeDeadlineSeconds"] = 300
    return pod


def _attach(pod: dict[str, Any], source: dict[str, Any]) -> None:
    spec = pod["spec"]
    spec["volumes"] = [*spec.get("volumes", []), {"name": VOLUME, **source}]
    container = spec["containers"][0]
    mount = {"name": VOLUME, "mountPath": BUNDLE, "readOnly": True}
    container["volumeMounts"] = [*container.get("volumeMounts", []), mount]


def _plain(resources: dict[str, Any]) -> dict[str, Any]:
    """Without devices, which would be held for a container that computes nothing."""
    known = {"cpu", "memory", "ephemeral-storage"}
    return {
        kind: {name: amount for name, amount in amounts.items() if name in known} for kind, amounts in resources.items()
    }


def _stripped() -> dict[str, Any]:
    return {
        "runAsUser": 0,
        "runAsGroup": 0,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
