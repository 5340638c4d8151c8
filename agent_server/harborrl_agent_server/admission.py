"""Slots: at most so many trials at once, in the order they came."""

import asyncio
import contextlib
import sys
from collections import deque
from collections.abc import Awaitable
from dataclasses import dataclass


class Slots:
    """A first-in-first-out semaphore whose waiters can leave the queue."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.taken = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def queued(self) -> int:
        return len(self._waiting)

    @property
    def free(self) -> int:
        return max(self.capacity - self.taken - self.queued, 0)

    async def take(self) -> None:
        """Returns when a slot is ours. A cancelled wait gives back whatever it had been handed."""
        if self.taken < self.capacity and not self._waiting:
            self.taken += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give_back()
            elif turn in self._waiting:  # a slot that came free meanwhile has passed it over
                self._waiting.remove(turn)
            raise

    def give_back(self) -> None:
        """The slot goes to the one who waits longest."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self.taken -= 1


class Starts(Slots):
    """Slots for sandboxes that are being made: each is given back when its sandbox is there, or never will be."""

    def __init__(self, limit: int) -> None:
        """`limit` 0: any number at once."""
        super().__init__(limit or sys.maxsize)


@dataclass(frozen=True)
class Admission:
    """What a trial waits for before it begins, in this order."""

    slots: Slots
    starts: Slots

    @classmethod
    def of(cls, max_concurrent: int, start_concurrency: int) -> "Admission":
        return cls(Slots(max_concurrent), Starts(start_concurrency))


class Taken:
    """One slot that is given back once, by whoever comes first."""

    def __init__(self, slots: Slots) -> None:
        self._slots: Slots | None = slots

    def give_back(self) -> None:
        if self._slots is not None:
            slots, self._slots = self._slots, None
            slots.give_back()


async def taken(slots: Slots, ended: Awaitable[None], patience_s: float | None) -> Taken | None:
    """A slot, or None when `ended` came or patience ran out first; then, and when cancelled, none is held."""
    turn = asyncio.ensure_future(slots.take())
    leaving = asyncio.ensure_future(ended)
    is_ours = False
    try:
        await asyncio.wait({turn, leaving}, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
        is_ours = turn.done() and not leaving.done()
    finally:
        leaving.cancel()
        if not is_ours:
            await left(turn, slots)
    return Taken(slots) if is_ours else None


async def left(turn: asyncio.Future[None], slots: Slots) -> None:
    if turn.done():
        slots.give_back()
        return
    turn.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await turn
