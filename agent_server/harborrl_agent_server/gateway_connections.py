"""Who may stay connected to the gateway: any program of any sandbox can open connections by the thousand.

A connection is a stranger until a request of it has shown the token of a trial that runs; from then on it is one of
that trial's. Of too many the one that has waited longest goes, not the one that came last: an agent asks at once, so
whoever holds strangers open loses them to it.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Self, override

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from harborrl_agent_server.listeners import is_over

QUIET = logging.getLogger("harborrl_agent_server.gateway.http")
"""uvicorn writes a line for each malformed request, of which a sandbox can send any number."""
QUIET.setLevel(logging.ERROR)

Client = tuple[str, int]
"""Address and port of the other end; no two open connections have the same."""


@dataclass(frozen=True)
class Limits:
    of_address: int = 64
    """Strangers of one address: a pod has one of its own, and all local sandboxes share one."""
    of_all: int = 1024
    """Strangers together."""
    of_trial: int = 16
    """Agents have one or two; a library that keeps the connections of threads has some more."""
    first_s: float = 10.0
    """From its beginning until it shows a token: a request's head is one packet."""

    @classmethod
    def fitting(cls, descriptors: int) -> Self:
        """Of a process that may have so many: strangers hold a small part of them, whoever sends them."""
        return cls(of_all=min(cls.of_all, descriptors // 8))


class Connections:
    """The open ones, by what is known of them. `refused` is told why one had to go: of a closed set of words."""

    def __init__(self, limits: Limits | None = None, refused: Callable[[str], object] = lambda _: None) -> None:
        self._limits = limits or Limits()
        self._refused = refused
        self._open: dict[Client, GatewayProtocol] = {}
        self._strangers: dict[str, dict[Client, asyncio.TimerHandle]] = {}
        self._unknown = 0
        self._trials: dict[str, dict[Client, None]] = {}
        self._trial_of: dict[Client, str] = {}

    def came(self, one: "GatewayProtocol") -> None:
        """A connection without an address is the dispatcher's, which has counted it already."""
        if one.client is None:
            return
        address, client = one.client[0], one.client
        self._open[client] = one
        waiting = self._strangers.setdefault(address, {})
        waiting[client] = self._soon(client)
        self._unknown += 1
        if len(waiting) > self._limits.of_address:
            self._turn_out(self._idle(waiting), "address")
        elif self._unknown > self._limits.of_all:
            most = max(self._strangers.values(), key=len)
            self._turn_out(self._idle(most), "all")

    def knows(self, client: Client | None, trial: str) -> None:
        """A connection has shown the token of a trial that runs."""
        if client is None or client not in self._open or self._trial_of.get(client) == trial:
            return
        self._forget(client)
        self._trial_of[client] = trial
        own = self._trials.setdefault(trial, {})
        own[client] = None
        if len(own) > self._limits.of_trial:
            self._turn_out(self._idle(own), "trial")

    def went(self, client: Client | None) -> None:
        if client is not None and self._open.pop(client, None) is not None:
            self._forget(client)

    def _soon(self, client: Client) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(self._limits.first_s, self._judge, client)

    def _judge(self, client: Client) -> None:
        """Whoever asks a server that is slow to know its token waits for that."""
        if is_over(self._open[client].cycle):
            self._turn_out(client, "silent")
        else:
            self._strangers[client[0]][client] = self._soon(client)

    def _idle(self, some: Iterable[Client]) -> Client:
        """The oldest without a request under way, else the oldest."""
        every = list(some)
        return next((client for client in every if is_over(self._open[client].cycle)), every[0])

    def _turn_out(self, client: Client, why: str) -> None:
        one = self._open[client]
        self.went(client)
        self._refused(why)
        # Not closed: what it has been sent and does not read would keep it open.
        one.transport.abort()

    def _forget(self, client: Client) -> None:
        """Take it out of where it is counted."""
        trial = self._trial_of.pop(client, None)
        if trial is None:
            waiting = self._strangers[client[0]]
            waiting.pop(client).cancel()
            self._unknown -= 1
            if not waiting:
                del self._strangers[client[0]]
            return
        del self._trials[trial][client]
        if not self._trials[trial]:
            del self._trials[trial]


class GatewayProtocol(H11Protocol):
    """uvicorn's, which tells when a connection begins and ends, and writes no line that a sandbox could ask for."""

    def __init__(self, connections: Connections, **given: Any) -> None:
        super().__init__(**given)
        self.logger = QUIET
        self._watched = connections

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn's
        super().connection_made(transport)
        self._watched.came(self)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._watched.went(self.client)
        super().connection_lost(exc)

    @override
    def send_400_response(self, msg: str) -> None:
        """Uvicorn's would be a second answer to a request whose body goes wrong behind the first, which is an error."""
        if self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            super().send_400_response(msg)
        else:
            self.transport.abort()
