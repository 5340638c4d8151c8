"""Slots: at most so many trials at once, in the order they came."""

import asyncio
from collections import deque


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
