"""Keeps asking for the Lease of this installation: the loop and the transport round `election`."""

import asyncio
import copy
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from harborrl_operator.cluster import Cluster
from harborrl_operator.election import Candidate, Lease, Refused, Step, Timing
from harborrl_operator.errors import ClusterError, NotLeadingError

logger = logging.getLogger(__name__)

LEASE = "harborrl-operator"

REQUEST_SECONDS = 3.0
"""Longest wait for one answer: a connection that died silently costs one renewal and not the lease."""


class Elector:
    """One process's part in the election."""

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        identity: str,
        clock: Callable[[], float],
        timing: Timing = Timing(),  # noqa: B008 - frozen
    ) -> None:
        self._cluster, self._namespace, self._clock = cluster, namespace, clock
        self._candidate = Candidate(identity, timing)
        self._stored: dict[str, Any] = {}
        self._answered_at = clock()
        self._trouble = ""
        self.elected = asyncio.Event()
        """Set once, when this process begins to lead."""
        self.has_looked = False
        """Whether the lease was seen at all."""

    @property
    def holder(self) -> str:
        """Who was last seen to hold the lease."""
        return self._candidate.lease.holder

    def seconds_left(self) -> float:
        """How long this process may still act; not positive: it may not."""
        return self._candidate.seconds_left(self._clock())

    def silence(self) -> float:
        """Seconds since the API server last answered."""
        return self._clock() - self._answered_at

    async def run(self) -> None:
        """Until cancelled. Raises NotLeadingError when this process led and may no longer."""
        while True:
            step, lease = self._candidate.ask(self._clock())
            sent = self._clock()
            answer = await self._exchange(step, lease)
            self._candidate.hear(step, answer, sent=sent, now=self._clock())
            left = self.seconds_left()
            if left > 0 and not self.elected.is_set():
                logger.info("leading as %s", self._candidate.identity)
                self.elected.set()
            pause = self._candidate.pause(self._clock())
            await asyncio.sleep(min(pause, left) if left > 0 else pause)
            if self.elected.is_set() and self.seconds_left() <= 0:
                raise NotLeadingError("the lease could not be renewed in time")

    async def release(self) -> None:
        """Stop leading and let the next one follow at once. Losing this answer only makes it wait."""
        lease = self._candidate.release()
        if lease is not None and not isinstance(await self._exchange(Step.WRITE, lease), Refused):
            logger.info("lease released")

    async def _exchange(self, step: Step, lease: Lease) -> Lease | Refused:
        left = self.seconds_left()
        try:
            async with asyncio.timeout(min(REQUEST_SECONDS, left) if left > 0 else REQUEST_SECONDS):
                stored = await (self._read() if step is Step.READ else self._write(lease))
        except TimeoutError:
            return Refused.LOST
        except ClusterError as error:
            if error.status:
                self._answered_at = self._clock()
            if error.is_conflict:
                return Refused.CONFLICT
            self._complain(str(error))
            return Refused.LOST
        self._answered_at = self._clock()
        self._stored, self._trouble, self.has_looked = stored, "", True
        return _lease(stored)

    def _complain(self, trouble: str) -> None:
        """Once for each trouble, not once a second."""
        if trouble != self._trouble:
            logger.warning("election: %s", trouble)
        self._trouble = trouble

    async def _read(self) -> dict[str, Any]:
        return await self._cluster.get("Lease", self._namespace, LEASE) or {}

    async def _write(self, lease: Lease) -> dict[str, Any]:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        thing = copy.deepcopy(self._stored) if lease.version else _new(self._namespace)
        before = thing.setdefault("spec", {})
        thing["spec"] = {
            "holderIdentity": lease.holder,
            "leaseDurationSeconds": int(self._candidate.timing.duration),
            "leaseTransitions": lease.transitions,
            "acquireTime": before.get("acquireTime", now) if before.get("holderIdentity") == lease.holder else now,
            # For people: no candidate reads another one's clock.
            "renewTime": now,
        }
        return await (self._cluster.replace(thing) if lease.version else self._cluster.create(thing))


def _new(namespace: str) -> dict[str, Any]:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": LEASE, "namespace": namespace},
    }


def _lease(thing: dict[str, Any]) -> Lease:
    spec = thing.get("spec") or {}
    version = thing.get("metadata", {}).get("resourceVersion", "")
    return Lease(spec.get("holderIdentity") or "", version, int(spec.get("leaseTransitions") or 0))
