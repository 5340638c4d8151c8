"""Pods of trials from the controller of kubernetes-sigs/agent-sandbox: a claim each, entered by our own exec."""

import logging
from datetime import UTC, datetime
from typing import Any

from harborrl_agent_server.errors import StartupError
from harborrl_agent_server.sandboxes.allocating import Lease
from harborrl_agent_server.sandboxes.claim_leases import ClaimGround, ClaimLease, Now, Office
from harborrl_agent_server.sandboxes.claims import EXTENSIONS, own_pool, pool_of
from harborrl_agent_server.sandboxes.cluster import KubeError, KubeUnreachableError, created
from harborrl_agent_server.sandboxes.policies import removed
from harborrl_agent_server.warmth import Warmth

LOG = logging.getLogger(__name__)


def utc() -> datetime:
    return datetime.now(UTC)


class ClaimAllocator:
    """`size`: of the pool that is made for the template when the namespace has none."""

    def __init__(self, ground: ClaimGround, template: str, size: int, now: Now = utc) -> None:
        self.office = Office(ground, template, now)
        self._ground = ground
        self._size = size

    async def open(self) -> None:
        office = self.office
        try:
            await office.read_template()
            await self._sweep()
            office.pool = await self._pool()
        except KubeError as error:
            raise StartupError(self._missing(error)) from error
        except KubeUnreachableError as error:
            raise StartupError(f"the API server does not answer: {error}") from error
        office.watch.start()

    def _missing(self, error: KubeError) -> str:
        if error.status != 404:
            return f"claims of agent-sandbox: {error}; check the RBAC of the chart"
        return (
            f"claims.template {self.office.template}: namespace {self._ground.namespace} has no such SandboxTemplate of"
            f" {EXTENSIONS}; create it, or install agent-sandbox with its extensions"
        )

    async def _sweep(self) -> None:
        """Claims of this server's last life: their pods would come again if the pods alone were deleted."""
        office, cluster = self.office, self._ground.cluster
        left = await cluster.request("GET", office.claims_path, query=[("labelSelector", office.selector)])
        for each in left["items"]:
            LOG.info("deleting claim %s of an earlier life", each["metadata"]["name"])
            await removed(cluster, f"{office.claims_path}/{each['metadata']['name']}", each["metadata"]["uid"])

    async def _pool(self) -> str:
        """Whose sandboxes are claimed: the largest of the template that is there, or one of our own."""
        ground, template = self._ground, self.office.template
        path = f"{self.office.path}/sandboxwarmpools"
        own = f"{ground.anchor.name}-{template}"[:63].rstrip("-.")
        found = await ground.cluster.request("GET", path)
        others = [pool for pool in found["items"] if pool["metadata"]["name"] != own]
        if name := pool_of(template, others):
            return name
        body = own_pool(own, template, self._size, ground.labels, ground.anchor.owner())
        await created(ground.cluster, path, body)
        return own

    async def cool(self) -> None:
        """The pool is the controller's, and a trial that waits for its slot may still claim from it."""

    async def close(self) -> None:
        await self.office.watch.close()

    def ask(self, manifest: dict[str, Any], prepare: str) -> Lease:  # noqa: ARG002 - it comes unprepared
        return ClaimLease(self.office, manifest)

    def warmth(self) -> Warmth:
        return Warmth(warm_starts=self.office.warm_starts, cold_starts=self.office.cold_starts)
