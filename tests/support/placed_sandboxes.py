"""Sandboxes on a real cluster: a namespace for one test, and a provider in it."""

import contextlib
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from harborrl_agent_server.sandboxes.cluster import Cluster
from harborrl_agent_server.sandboxes.kubernetes import KubernetesSandbox
from harborrl_agent_server.sandboxes.kubernetes_provider import KubernetesProvider
from harborrl_agent_server.settings import Settings
from support.agent_server import BUDGETS
from support.sandbox_api import sandbox_of

IMAGE = os.environ.get("HARBORRL_TEST_SANDBOX_IMAGE", "localhost/devcluster/busybox:1")


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
    name = f"hrl-sandbox-test-{uuid4().hex[:6]}"
    labels = {"pod-security.kubernetes.io/enforce": "baseline"}
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    await cluster.request("POST", "/api/v1/namespaces", body=body)
    settings = Settings(
        tasks_dir=folder,
        trials_dir=folder / "trials",
        sandbox_namespace=name,
        sandbox_image=IMAGE,
        sandbox_config=config,
        pod_name=f"agent-{uuid4().hex[:6]}",
        budgets=replace(BUDGETS, environment_start_s=60),
        unsafe_ignore_network_policy=True,
    )
    try:
        yield Place(cluster, replace(settings, **changes))
    finally:
        await cluster.request("DELETE", f"/api/v1/namespaces/{name}")
        await cluster.close()


async def begun(provider: KubernetesProvider, folder: Path, **task: Any) -> KubernetesSandbox:
    sandbox = sandbox_of(provider, folder, **task)
    await sandbox.start(force_build=False)
    return sandbox
