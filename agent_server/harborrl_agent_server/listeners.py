"""Servers on sockets, with an end to every wait: who never finishes a request would hold a descriptor for ever."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Any, override

import uvicorn

LOOK_SECONDS = 30.0
"""Between two looks; what has no request at both of them goes. Between requests uvicorn waits for 5 s by itself."""

BODY_SECONDS = 120.0
"""For a body to come; a client that stands still in the middle of it is gone."""


class Listener(uvicorn.Server):
    """Leaves signals to the process whose part it is, and closes connections that do not come to their request."""

    def __init__(self, config: uvicorn.Config, look_s: float = LOOK_SECONDS) -> None:
        super().__init__(config)
        self._look_s = look_s

    @override
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    @override
    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        dismissing = asyncio.ensure_future(self._dismiss())
        try:
            await super().serve(sockets)
        finally:
            dismissing.cancel()

    async def _dismiss(self) -> None:
        seen: dict[Any, Any] = {}
        while True:
            await asyncio.sleep(self._look_s)
            waiting = {one: cycle for one in self.server_state.connections if is_over(cycle := cycle_of(one))}
            for connection in [one for one, cycle in waiting.items() if one in seen and seen[one] is cycle]:
                connection.transport.close()
            seen = waiting


def cycle_of(connection: Any) -> Any:
    """The last request of a connection of uvicorn's and its answer; None while there was none."""
    return getattr(connection, "cycle", None)


def is_over(cycle: Any) -> bool:
    return cycle is None or cycle.response_complete
