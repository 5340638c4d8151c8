"""How many trials may be under way: as many as the agent server has room for, as it says itself, and no more.

What exceeds it waits here, where no clock of a trial is running.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from harborrl_trainer.rollout.agent_client import Health


class InFlight:
    """A semaphore whose width can change while it is held. Narrowing takes nobody's place away."""

    def __init__(self, width: int) -> None:
        self._width = max(1, width)
        self._held = 0
        self._changed = asyncio.Condition()

    @property
    def held(self) -> int:
        return self._held

    @property
    def width(self) -> int:
        return self._width

    async def resize(self, width: int) -> None:
        """At least 1, so that a server busy with other jobs is asked again rather than never."""
        async with self._changed:
            self._width = max(1, width)
            self._changed.notify_all()

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        async with self._changed:
            await self._changed.wait_for(lambda: self._held < self._width)
            self._held += 1
        try:
            yield
        finally:
            async with self._changed:
                self._held -= 1
                self._changed.notify_all()


def width_for(health: Health, held: int) -> int:
    """Places that are ours: those we hold and those that nobody holds.

    Ours may not have reached the server's count yet, hence the subtraction that is never negative.
    """
    others = max(0, health.in_flight + health.queued - held)
    return max(1, health.capacity - others)


async def follow_capacity(
    places: InFlight, health: Callable[[], Awaitable[Health]], pause: Callable[[], Awaitable[None]]
) -> None:
    """Keeps the width at the live free capacity until cancelled. `health` raising ends it: let the caller decide."""
    while True:
        await places.resize(width_for(await health(), places.held))
        await pause()
