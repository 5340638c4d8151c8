"""Pods of trials from the warm pool, and created for them where it has none."""

import asyncio
from typing import Any

from harborrl_agent_server.bounded import keep
from harborrl_agent_server.sandboxes.allocating import NOT_ASKED, Ground, Lease, Pod
from harborrl_agent_server.sandboxes.creating import ColdLease
from harborrl_agent_server.sandboxes.pods import Verdict
from harborrl_agent_server.sandboxes.warm_plan import Rules, Stage, key_of, poolable, taking
from harborrl_agent_server.sandboxes.warm_pool import WarmPool
from harborrl_agent_server.warmth import Warmth


class WarmAllocator:
    """`slots`: how many trials there may be at once."""

    def __init__(self, ground: Ground, rules: Rules, slots: int) -> None:
        self.ground = ground
        self.pool = WarmPool(ground, rules, self._free_slots)
        self.warm_starts = 0
        self.cold_starts = 0
        self._slots = slots
        self._held: set[WarmLease] = set()

    async def open(self) -> None:
        self.pool.start()

    async def cool(self) -> None:
        await self.pool.close()

    async def close(self) -> None:
        await self.pool.close()

    def ask(self, manifest: dict[str, Any], prepare: str) -> Lease:
        return WarmLease(self, manifest, prepare)

    def warmth(self) -> Warmth:
        ready, starting = self.pool.count(Stage.READY), self.pool.count(Stage.STARTING)
        return Warmth(ready, starting, self.warm_starts, self.cold_starts)

    def hold(self, lease: "WarmLease") -> None:
        self._held.add(lease)

    def let_go(self, lease: "WarmLease") -> None:
        self._held.discard(lease)
        self.pool.changed()

    def _free_slots(self) -> int:
        return self._slots - len(self._held)


class WarmLease:
    """A pod of the pool, or one of its own."""

    def __init__(self, allocator: WarmAllocator, manifest: dict[str, Any], prepare: str) -> None:
        self._allocator = allocator
        self._manifest = manifest
        self._prepare = prepare
        self._taking: asyncio.Task[Pod | None] | None = None
        self._cold: ColdLease | None = None

    async def told(self) -> Verdict:
        return await self._cold.told() if self._cold else NOT_ASKED

    async def ready(self) -> Pod:
        allocator = self._allocator
        allocator.hold(self)
        if poolable(self._manifest):
            key = key_of(self._manifest)
            allocator.pool.used(key, self._manifest, self._prepare)
            self._taking = keep(allocator.pool.take(key, taking(self._manifest)))
            if pod := await asyncio.shield(self._taking):
                allocator.warm_starts += 1
                return pod
        allocator.cold_starts += 1
        self._cold = ColdLease(allocator.ground, self._manifest, full=allocator.pool.press)
        return await self._cold.ready()

    async def give_back(self) -> bool:
        if not await self._removed():
            return False
        self._allocator.let_go(self)
        return True

    async def _removed(self) -> bool:
        """A trial that is cut off while it takes a pod may have it: the pod is not given to another one."""
        ground = self._allocator.ground
        if self._taking is not None:
            await asyncio.wait({self._taking})
            if pod := self._taking.result():
                return await ground.delete_pod(pod.name, pod.uid)
        return self._cold is None or await self._cold.give_back()
