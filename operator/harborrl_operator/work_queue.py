"""One queue of keys: many events of one job become one pass, and a job never has two passes at once.

A pass that fails or hangs holds nobody up: the first is tried again with back-off, the second, which waits for an
answer of the API server (behind a webhook that is down, say), gives its place to another job after a while.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

logger = logging.getLogger(__name__)

Key = tuple[str, str]
"""Namespace and name."""

SETTLE_SECONDS = 0.2
"""Events of one change come in bursts; waiting this long makes them one pass."""

PATIENCE_SECONDS = 2.0
"""After which a pass no longer counts towards those that may run at once: it computes nothing, it waits."""

MOST_AT_ONCE = 64
"""Passes, those that only wait included: each holds a few connections and what it has read."""

FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 1.0, 60.0


class WorkQueue:
    """`work(key)` returns the seconds after which to look again, or None. An exception is retried with back-off."""

    def __init__(
        self,
        work: Callable[[Key], Awaitable[float | None]],
        concurrency: int = 8,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        self._work = work
        self._concurrency, self._patience = concurrency, patience
        self._due: dict[Key, float] = {}
        self._running: dict[Key, asyncio.Task[None]] = {}
        self._places: dict[Key, asyncio.TimerHandle] = {}
        """Of the passes that run, those that have not waited for long, and what will take their place from them."""
        self._failures: dict[Key, tuple[int, str]] = {}
        """How often in a row, and how last."""
        self._wake = asyncio.Event()

    def add(self, key: Key, after: float = SETTLE_SECONDS) -> None:
        """Ask for a pass; the earliest wish counts, also while a pass runs."""
        due = asyncio.get_running_loop().time() + after
        self._due[key] = min(due, self._due.get(key, due))
        self._wake.set()

    def __len__(self) -> int:
        return len(self._due)

    async def run(self) -> None:
        """Until cancelled; then the passes under way are finished."""
        try:
            while True:
                self._wake.clear()
                pause = self._start_due()
                try:
                    await asyncio.wait_for(self._wake.wait(), pause)
                except TimeoutError:
                    continue
        finally:
            await asyncio.gather(*self._running.values(), return_exceptions=True)

    def _start_due(self) -> float | None:
        """Start what is due; seconds until the next key is, None when none waits for a time."""
        now = asyncio.get_running_loop().time()
        waiting = sorted((due, key) for key, due in self._due.items() if key not in self._running)
        for due, key in waiting:
            if due > now:
                return due - now
            if len(self._places) >= self._concurrency or len(self._running) >= MOST_AT_ONCE:
                return None
            del self._due[key]
            self._running[key] = asyncio.create_task(self._one(key), name=f"reconcile {key[0]}/{key[1]}")
            self._places[key] = asyncio.get_running_loop().call_later(self._patience, self._give_place, key)
        return None

    def _give_place(self, key: Key) -> None:
        place = self._places.pop(key, None)
        if place is not None:
            place.cancel()
        self._wake.set()

    async def _one(self, key: Key) -> None:
        again: float | None = None
        try:
            again = await self.once(key)
        finally:
            del self._running[key]
            self._give_place(key)
        if again is not None:
            self.add(key, again)

    async def once(self, key: Key) -> float | None:
        """One pass; when to look again. A bug in one job's pass must not stop the others: it is logged and retried."""
        try:
            again = await self._work(key)
        except Exception as error:  # noqa: BLE001 - see above
            return self._after_failure(key, error)
        self._failures.pop(key, None)
        return again

    def _after_failure(self, key: Key, error: Exception) -> float:
        """Logs the first of a row of equal failures in full, then the 2nd, 4th, 8th … in one line."""
        said = f"{type(error).__name__}: {error}"
        count, before = self._failures.get(key, (0, said))
        count += 1
        self._failures[key] = (count, said)
        pause: float = min(FIRST_RETRY_SECONDS * 2 ** min(count - 1, 10), LONGEST_RETRY_SECONDS)
        if count == 1 or said != before:
            logger.error("pass over %s/%s failed, again in %.0f s", *key, pause, exc_info=error)
        elif count & (count - 1) == 0:
            logger.error("pass over %s/%s failed %d times, again in %.0f s: %s", *key, count, pause, said)
        return pause
