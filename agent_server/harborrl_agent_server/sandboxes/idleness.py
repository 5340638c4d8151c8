"""The end of a sandbox in which nothing has run for long: `agentServer.sandbox.idleTimeoutSeconds`."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Protocol

from harborrl_agent_server.bounded import alone


class Timer(Protocol):
    def cancel(self) -> None: ...


Later = Callable[[float, Callable[[], Any]], Timer]
"""Calls the second after the first, in seconds."""

End = Callable[[], Coroutine[Any, Any, None]]


class Idleness:
    """Counts from the end of the last command, and not at all while one runs."""

    def __init__(self, limit_s: float | None, end: End, later: Later | None = None) -> None:
        """`limit_s` None: for ever. `end` is awaited once, by nobody."""
        self._limit_s = limit_s
        self._end = end
        self._later = later
        self._running = 0
        self._closed = False
        self._timer: Timer | None = None

    def begin(self) -> None:
        if self._limit_s is not None and self._timer is None and not self._closed:
            later = self._later or asyncio.get_running_loop().call_later
            self._timer = later(self._limit_s, lambda: alone(self._end()))

    def close(self) -> None:
        """It counts no more: the sandbox is being removed."""
        self._closed = True
        self._stop()

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        self._stop()
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1
            if not self._running:
                self.begin()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
