"""The NetworkPolicies of single pods: made before the pod, removed with it, also while they are still being made."""

import asyncio
import logging
from typing import Any

from harborrl_agent_server.bounded import keep
from harborrl_agent_server.errors import SandboxStartError
from harborrl_agent_server.sandboxes.cluster import Cluster, KubeError, KubeUnreachableError, created, settled

LOG = logging.getLogger(__name__)

PATH = "/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies"


class OwnPolicy:
    """At most one policy, by the name of its pod."""

    def __init__(self, cluster: Cluster, namespace: str, name: str) -> None:
        self._cluster = cluster
        self._path = PATH.format(namespace=namespace)
        self._name = name
        self._writing: asyncio.Task[None] | None = None

    async def write(self, manifest: dict[str, Any]) -> None:
        """Make it, or give it other rules; raises `SandboxStartError`."""
        self._writing = keep(self._write(manifest, self._writing))
        await asyncio.shield(self._writing)

    async def _write(self, manifest: dict[str, Any], before: "asyncio.Task[None] | None") -> None:
        if before is not None:
            await asyncio.wait({before})
        try:
            if await created(self._cluster, self._path, manifest) is None:
                # Ours by its name: from an earlier phase of the trial.
                await self._cluster.request("PATCH", f"{self._path}/{self._name}", body={"spec": manifest["spec"]})
        except (KubeError, KubeUnreachableError) as error:
            raise refused(str(error)) from error

    async def remove(self) -> bool:
        """Whether nothing is left of it. Never raises; a try that failed may be repeated."""
        if self._writing is None:
            return True
        await asyncio.wait({self._writing})
        if not await removed(self._cluster, f"{self._path}/{self._name}"):
            return False
        self._writing = None
        return True


async def removed(cluster: Cluster, path: str, uid: str | None = None) -> bool:
    try:
        await settled(cluster, path, uid)
    except (KubeError, KubeUnreachableError) as error:
        LOG.warning("%s could not be deleted: %s", path, error)
        return False
    return True


def refused(why: str) -> SandboxStartError:
    return SandboxStartError(
        "PolicyRefused", f"the sandbox's NetworkPolicy cannot be written: {why}; check the chart's RBAC"
    )
