"""Anchors: ConfigMaps that own the sandboxes, because an owner reference cannot cross namespaces.

One a job and, below it, one a server pod: deleting the job's removes everything, the pod's only what that pod made.
"""

import logging
from dataclasses import dataclass
from typing import Any

from harborrl_agent_server.errors import StartupError
from harborrl_agent_server.sandboxes.cluster import Cluster, KubeError, KubeUnreachableError, created, settled
from harborrl_agent_server.sandboxes.pods import labels_for
from harborrl_agent_server.settings import JobIdentity

LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Anchor:
    name: str
    uid: str

    def owner(self) -> dict[str, Any]:
        return {"apiVersion": "v1", "kind": "ConfigMap", "name": self.name, "uid": self.uid}


class Anchors:
    """The anchors of one server process: named by `server`, and gone with its pod (the operator's sweeper)."""

    def __init__(self, cluster: Cluster, namespace: str, job: JobIdentity, pod_name: str, server: str) -> None:
        self._cluster = cluster
        self._path = f"/api/v1/namespaces/{namespace}/configmaps"
        self._job = job
        self._pod_name = pod_name
        self._server = server
        self._job_anchor: Anchor | None = None
        self.own: Anchor | None = None

    async def create(self) -> Anchor:
        """Both anchors; those that a killed predecessor of this pod left are taken over."""
        own_name = f"server-{self._server}"
        if self._job:
            job_name = f"{self._job.namespace}-{self._job.name}-{self._job.uid[:8]}"
            self._job_anchor = await self._ensure(job_name, [])
            own_name = f"{job_name}-{self._server.removeprefix(f'{self._job.name}-')}"
        owners = [self._job_anchor.owner()] if self._job_anchor else []
        self.own = await self._ensure(own_name, owners)
        return self.own

    async def _ensure(self, name: str, owners: list[dict[str, Any]]) -> Anchor:
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "labels": labels_for(self._job, "anchor"), "ownerReferences": owners},
            "data": {"server": self._pod_name},
        }
        try:
            made = await created(self._cluster, self._path, body) or await self._of_before(name)
        except KubeError as error:
            raise StartupError(
                f"cannot create ConfigMap {name}: {error}; check the sandbox namespace and the chart's RBAC"
            ) from error
        except KubeUnreachableError as error:
            raise StartupError(f"the API server does not answer: {error}") from error
        return Anchor(name, made["metadata"]["uid"])

    async def _of_before(self, name: str) -> dict[str, Any]:
        try:
            return await self._cluster.request("GET", f"{self._path}/{name}")
        except KubeError as error:
            raise StartupError(f"cannot read ConfigMap {name}: {error}; check the chart's RBAC") from error
        except KubeUnreachableError as error:
            raise StartupError(f"the API server does not answer: {error}") from error

    async def remove(self, *, with_job: bool) -> None:
        """The anchor of this pod, or the job's with all below it. Garbage collection removes what they own."""
        target = self._job_anchor if self._job_anchor and with_job else self.own
        if target is None:
            return
        try:
            await settled(self._cluster, f"{self._path}/{target.name}", target.uid)
        except (KubeError, KubeUnreachableError) as error:
            LOG.warning(
                "anchor %s could not be deleted (%s); the operator's sweeper removes it when the job is gone",
                target.name,
                error,
            )
