"""How long nothing moved in a transfer that did not end: what its way is to blame for, and what its sandbox."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LOOKS = 20
"""At what has moved, in a transfer's whole time."""


class Standstill:
    """The longest pause so far, to within a twentieth of the time that the transfer has."""

    def __init__(self, moved: Callable[[], int], limit_s: float) -> None:
        self._moved, self._limit_s = moved, limit_s
        self._loop = asyncio.get_running_loop()
        self._seen, self._since = moved(), self._loop.time()
        self._longest = 0.0
        self._next = self._loop.call_later(limit_s / LOOKS, self._look)

    def _look(self) -> None:
        self._note()
        self._next = self._loop.call_later(self._limit_s / LOOKS, self._look)

    def _note(self) -> None:
        now, moved = self._loop.time(), self._moved()
        self._longest = max(self._longest, now - self._since)
        if moved != self._seen:
            self._seen, self._since = moved, now

    @property
    def is_long(self) -> bool:
        """Whether no byte moved for half of the transfer's time, wherever that half lay."""
        self._note()
        return self._longest >= self._limit_s / 2

    def close(self) -> None:
        self._next.cancel()


@contextmanager
def standstill(moved: Callable[[], int], limit_s: float) -> Iterator[Standstill]:
    """Looks for as long as the block lasts."""
    looking = Standstill(moved, limit_s)
    try:
        yield looking
    finally:
        looking.close()
