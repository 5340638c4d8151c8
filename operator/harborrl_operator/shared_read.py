"""One read for all who ask at about the same time: a list of every job costs the same for one pass as for twenty."""

import asyncio
from collections.abc import Awaitable, Callable


class SharedRead[T]:
    """Each read begins after all who share it have asked, so nobody is told less than by a read of their own."""

    def __init__(self, read: Callable[[], Awaitable[T]]) -> None:
        self._read = read
        self._current: asyncio.Task[T] | None = None
        self._next: asyncio.Task[T] | None = None

    async def __call__(self) -> T:
        """What `read` gives or raises; the same object for all: read only."""
        if self._next is None:
            self._next = asyncio.create_task(self._after(self._current), name="shared read")
        # One who gives up must not take the read away from the others.
        return await asyncio.shield(self._next)

    async def _after(self, current: asyncio.Task[T] | None) -> T:
        if current is not None:
            await asyncio.wait((current,))
        self._current, self._next = self._next, None
        return await self._read()
