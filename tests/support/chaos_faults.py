"""What breaks under the trials: sandboxes by name, and the dev cluster's own API server."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from devcluster.cluster import OwnCluster
from devcluster.components import control_plane_of
from devcluster.controlplane import ensure_control_plane
from devcluster.progress import Reporter
from devcluster.settings import load_settings

from harborrl_agent_server.sandboxes.cluster import Cluster, KubeError, KubeUnreachableError


@dataclass
class Sandboxes:
    """The sandbox pods of one namespace, as somebody else's hand finds them."""

    cluster: Cluster
    namespace: str
    deleted: int = 0

    @property
    def path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    async def names(self, selector: str = "") -> list[str]:
        listed = await self.cluster.request("GET", self.path, query=[("labelSelector", selector)])
        return [pod["metadata"]["name"] for pod in listed["items"] if "deletionTimestamp" not in pod["metadata"]]

    async def delete(self, name: str) -> None:
        with contextlib.suppress(KubeError):  # gone meanwhile
            await self.cluster.request("DELETE", f"{self.path}/{name}", body={"gracePeriodSeconds": 1})
            self.deleted += 1

    async def delete_of(self, run: str) -> None:
        """Those of one trial, however long the API server is away."""
        while True:
            try:
                for name in await self.names(f"harborrl.dev/trial={run}"):
                    await self.delete(name)
            except KubeUnreachableError:
                await asyncio.sleep(0.5)
            else:
                return


def has_own_api_server() -> bool:
    """Whether the API server is a process that `devcluster` started here."""
    return OwnCluster(load_settings(), Reporter()).supervisor.record("kube-apiserver") is not None


@contextlib.asynccontextmanager
async def api_server_away() -> AsyncIterator[None]:
    """It is ended, and started again as `devcluster up` starts it; whatever happens meanwhile."""
    settings = load_settings()
    own = OwnCluster(settings, Reporter())
    await asyncio.to_thread(own.supervisor.stop, "kube-apiserver", 2.0)
    try:
        yield
    finally:
        plane, binaries = control_plane_of(settings), await asyncio.to_thread(own.binaries)
        await asyncio.to_thread(ensure_control_plane, plane, binaries, own.supervisor)


async def left_in(cluster: Cluster, namespace: str) -> list[str]:
    """Every pod, policy and ConfigMap of a namespace, without those that Kubernetes makes or is removing already."""
    places = ("/api/v1", "pods"), ("/apis/networking.k8s.io/v1", "networkpolicies"), ("/api/v1", "configmaps")
    found = []
    for group, kind in places:
        items = (await cluster.request("GET", f"{group}/namespaces/{namespace}/{kind}"))["items"]
        found += [f"{kind} {item['metadata']['name']}" for item in items if "deletionTimestamp" not in item["metadata"]]
    return [name for name in found if name != "configmaps kube-root-ca.crt"]
