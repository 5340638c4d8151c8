"""What waits for trials on a real cluster: a namespace for one test, and providers in it."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harborrl_agent_server.sandboxes.cluster import Cluster
from harborrl_agent_server.sandboxes.kubernetes import KubernetesSandbox
from harborrl_agent_server.sandboxes.kubernetes_provider import KubernetesProvider
from harborrl_agent_server.settings import Settings
from support.sandbox_api import sandbox_of
from support.sandbox_cluster import own_namespace, settings_for


@dataclass
class Place:
    """`cluster` speaks to the API server as the tests do, not as the server does."""

    cluster: Cluster
    settings: Settings

    @property
    def namespace(self) -> str:
        return self.settings.sandbox_namespace

    async def listed(self, resource: str, api: str = "api/v1") -> list[dict[str, Any]]:
        """What is not on its way out."""
        found = await self.cluster.request("GET", f"/{api}/namespaces/{self.namespace}/{resource}")
        return [thing for thing in found["items"] if not thing["metadata"].get("deletionTimestamp")]

    async def create(self, resource: str, body: dict[str, Any], api: str = "api/v1") -> None:
        await self.cluster.request("POST", f"/{api}/namespaces/{self.namespace}/{resource}", body=body)

    @contextlib.asynccontextmanager
    async def provided(self) -> AsyncIterator[KubernetesProvider]:
        provider = KubernetesProvider.from_settings(self.settings)
        await provider.open()
        try:
            yield provider
        finally:
            await provider.close()


@contextlib.asynccontextmanager
async def place(folder: Path, config: dict[str, Any], **changes: Any) -> AsyncIterator[Place]:
    cluster = await Cluster.connect()
    try:
        async with own_namespace(cluster) as name:
            own: dict[str, Any] = {"sandbox_config": config, "unsafe_ignore_network_policy": True}
            yield Place(cluster, settings_for(name, folder, **own | changes))
    finally:
        await cluster.close()


async def begun(provider: KubernetesProvider, folder: Path, **task: Any) -> KubernetesSandbox:
    sandbox = sandbox_of(provider, folder, **task)
    await sandbox.start(force_build=False)
    return sandbox
