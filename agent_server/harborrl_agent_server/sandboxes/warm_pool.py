"""Pods that run before a trial asks for them: made in the background, taken by a label, never used twice."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from harborrl_agent_server.bounded import alone, finish
from harborrl_agent_server.sandboxes.allocating import Ground, Patience, Pod, obtained
from harborrl_agent_server.sandboxes.creating import ColdLease
from harborrl_agent_server.sandboxes.pod_exec import lost
from harborrl_agent_server.sandboxes.warm_plan import (
    Rules,
    Shelf,
    Stage,
    Use,
    WarmPod,
    decide,
    warm_manifest,
)
from harborrl_agent_server.sandboxes.warm_pods import Kept, Recipe, prepared, taken

LOG = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
"""Between two plans that nothing but time has called for: ages, idle images, pauses."""

START_SECONDS = 600.0

PAUSE_SECONDS = 60.0
"""After a warm pod that did not start. Trials of that image start cold meanwhile, and say what is wrong with it."""

PRESSED_SECONDS = 30.0
"""For how long the pool makes room after a trial could not be placed."""

CLOSE_SECONDS = 5.0
"""Of the 7.5 s that a provider has at the end; anchors go in the rest, and take along what is left of the pool."""


class WarmPool:
    """The pool of one server. `free_slots`: trials that could still start."""

    def __init__(
        self,
        ground: Ground,
        rules: Rules,
        free_slots: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ground = ground
        self._rules = rules
        self._free_slots = free_slots
        self._clock = clock
        self._recipes: dict[str, Recipe] = {}
        self._pods: dict[str, Kept] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._pressed_until = float("-inf")
        self._changed = asyncio.Event()
        self._planner: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._planner = alone(self._keep_planning())

    async def close(self) -> None:
        """Remove every pod that no trial has taken."""
        if self._planner is not None:
            self._planner.cancel()
        for kept in list(self._pods.values()):
            self._remove(kept)
        if self._leaving:
            await finish(_all(self._leaving), CLOSE_SECONDS)

    def count(self, stage: Stage) -> int:
        return sum(kept.stage is stage for kept in self._pods.values())

    def changed(self) -> None:
        """Plan again, soon."""
        self._changed.set()

    def press(self) -> None:
        """A trial cannot be placed: give up what waits, and make nothing for a while."""
        self._pressed_until = self._clock() + PRESSED_SECONDS
        self._changed.set()

    def used(self, key: str, manifest: dict[str, Any], prepare: str) -> None:
        """A trial asks for a pod of this key."""
        recipe = self._recipes.setdefault(key, Recipe(manifest, prepare, self._clock()))
        recipe.manifest, recipe.prepare, recipe.used = manifest, prepare, self._clock()
        self._changed.set()

    async def take(self, key: str, labels: dict[str, str | None]) -> Pod | None:
        """A ready pod of this key, now with the labels of a trial; None when there is none."""
        while True:
            ready = [kept for kept in self._pods.values() if kept.key == key and kept.stage is Stage.READY]
            if not ready:
                return None
            oldest = min(ready, key=lambda kept: kept.born)
            del self._pods[oldest.name]
            self._changed.set()
            if oldest.raising is not None:
                oldest.raising.cancel()
            if oldest.pod is not None and await taken(self._ground, oldest.pod, labels):
                return oldest.pod
            LOG.info("warm pod %s could not be taken; it goes", oldest.name)
            self._remove(oldest)

    async def _keep_planning(self) -> None:
        while True:
            self._changed.clear()
            self.plan()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._changed.wait()

    def plan(self) -> None:
        """Begin what the pool's state calls for."""
        plan = decide(self._shelf(), self._rules)
        for name in plan.delete:
            self._remove(self._pods[name])
        for key in plan.create:
            self._create(key)
        self._forget_unused()

    def _shelf(self) -> Shelf:
        now = self._clock()
        return Shelf(
            pods=tuple(WarmPod(one.name, one.key, one.stage, now - one.born) for one in self._pods.values()),
            uses={key: Use(now - one.used, now < one.paused_until) for key, one in self._recipes.items()},
            free_slots=self._free_slots(),
            pressed=now < self._pressed_until,
        )

    def _create(self, key: str) -> None:
        recipe = self._recipes[key]
        name = f"sb-warm-{key[:8]}-{uuid4().hex[:8]}"
        patience = Patience(pull_s=self._ground.patience.pull_s, quota_s=0)
        lease = ColdLease(self._ground, warm_manifest(recipe.manifest, name), patience=patience)
        kept = Kept(name, key, lease, self._clock())
        self._pods[name] = kept
        kept.raising = alone(self._raise(kept, recipe))

    async def _raise(self, kept: Kept, recipe: Recipe) -> None:
        """Start a pod, and watch over it until it is taken or lost."""
        try:
            pod = await obtained(kept.lease, START_SECONDS)
            kept.pod = await prepared(self._ground, pod, recipe.prepare)
        except Exception as error:  # noqa: BLE001 - whatever it was, the pod must not count as one that starts
            LOG.info("warm pod %s did not start: %s: %s", kept.name, type(error).__name__, error)
            recipe.paused_until = self._clock() + PAUSE_SECONDS
        else:
            kept.stage = Stage.READY
            self._changed.set()
            LOG.info("warm pod %s was lost: %s", kept.name, (await lost(pod.view)).reason)
        kept.stage = Stage.DEAD
        self._changed.set()

    def _remove(self, kept: Kept) -> None:
        self._pods.pop(kept.name, None)
        if kept.raising is not None:
            kept.raising.cancel()
        task = alone(self._removed(kept))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def _removed(self, kept: Kept) -> None:
        """Until the API server takes it: nobody else will ask again, but for the sweep of the next life."""
        while not await kept.lease.give_back():  # noqa: ASYNC110 - it asks again
            await asyncio.sleep(LOOK_SECONDS)

    def _forget_unused(self) -> None:
        held = {kept.key for kept in self._pods.values()}
        now = self._clock()
        for key, recipe in list(self._recipes.items()):
            if key not in held and now - recipe.used > self._rules.idle_s:
                del self._recipes[key]


async def _all(tasks: set[asyncio.Task[None]]) -> None:
    await asyncio.wait(tasks)
