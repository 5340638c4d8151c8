"""Whether the session servers of live runs are still those that their sessions were opened on.

A trial whose session is lost cannot be trained on, and its agent may be hours from the model request that would tell.
One watcher for each session server, however many trials it has: `GET /health` names its instance, and costs it nothing.
"""

import asyncio
import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import httpx

from harborrl_agent_server.bounded import alone
from harborrl_agent_server.endpoints import EndpointRefusedError
from harborrl_agent_server.outcomes import Cause
from harborrl_agent_server.run import Run
from harborrl_agent_server.sessions import server_of

LOG = logging.getLogger(__name__)

LOOK_SECONDS = 10.0
"""Between two looks at one session server."""

ANSWER_SECONDS = 10.0
"""For one answer. A server that is slow is busy: it counts neither as there nor as gone."""

PATIENCE = httpx.Timeout(ANSWER_SECONDS, connect=ANSWER_SECONDS / 2)

DEAD_SECONDS = 120.0
"""After so long without any connection nobody is there. The sessions of a server that ended are in no other memory."""

BODY_LIMIT = 65536
"""Bytes of an answer that are read: it comes from wherever a request pointed."""


@dataclass(frozen=True)
class Look:
    """What one question brought."""

    connected: bool | None
    """None: connected, and no answer came in time."""
    instance: str | None = None
    """Whose answer it was; None where it does not say."""


@dataclass(eq=False)
class SessionServer:
    """What is known of one address."""

    address: str
    runs: set[Run] = field(default_factory=set)
    seen: set[str] = field(default_factory=set)
    """Instances that have answered here while it was watched."""
    silent_since: float | None = None

    def lost(self, look: Look, now: float) -> dict[Run, str]:
        """Runs whose session is gone, and why. A server is known to be another one only by whom was here before."""
        if look.connected is not False:
            self.silent_since = None
        elif self.silent_since is None:
            self.silent_since = now
        if self.silent_since is not None and now - self.silent_since >= DEAD_SECONDS:
            why = f"{self.address} has taken no connection for {now - self.silent_since:.0f} s"
            return dict.fromkeys(self.runs, why)
        if look.instance is None:
            return {}
        self.seen.add(look.instance)
        why = (
            f"{self.address} is another instance now ({look.instance[:32]}); it was restarted, and knows no old session"
        )
        return {run: why for run in self.runs if named(run) != look.instance and named(run) in self.seen}


class SessionWatch:
    """Ends the runs whose session server is gone. `follow` and `forget` each once for a run."""

    def __init__(
        self, client: httpx.AsyncClient, look_s: float = LOOK_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client = client
        self._look_s = look_s
        self._clock = clock
        self._servers: dict[str, SessionServer] = {}

    @property
    def watched(self) -> list[str]:
        return list(self._servers)

    def follow(self, run: Run) -> None:
        """A request that does not name its instance leaves nothing to compare with, and is not followed."""
        address = server_of(run.request)
        if address is None or not named(run):
            return
        if address not in self._servers:
            self._servers[address] = server = SessionServer(address)
            alone(self._watch(server))
        self._servers[address].runs.add(run)

    def forget(self, run: Run) -> None:
        address = server_of(run.request)
        if address in self._servers:
            self._servers[address].runs.discard(run)

    async def close(self) -> None:
        """Nothing is watched any more."""
        for server in self._servers.values():
            server.runs.clear()
        await self._client.aclose()

    async def _watch(self, server: SessionServer) -> None:
        """Until none of its runs is left."""
        try:
            while server.runs:
                look = await self._look(server.address)
                for run, why in server.lost(look, self._clock()).items():
                    if run.cancel(Cause.SESSION_GONE, why):
                        LOG.warning("run %s: its session is gone: %s", run.id, why)
                await asyncio.sleep(self._look_s)
        except EndpointRefusedError:
            LOG.info("session server %s is not watched: its host is refused", server.address)
        finally:
            del self._servers[server.address]

    async def _look(self, address: str) -> Look:
        try:
            async with (
                asyncio.timeout(ANSWER_SECONDS),
                self._client.stream("GET", f"{address}/health", timeout=PATIENCE) as response,
            ):
                return Look(connected=True, instance=instance_in(await head_of(response)))
        except (httpx.ConnectError, httpx.ConnectTimeout):
            return Look(connected=False)
        except (httpx.HTTPError, TimeoutError):
            return Look(connected=None)


def named(run: Run) -> str:
    return run.request.session_server_instance_id or ""


async def head_of(response: httpx.Response) -> bytes:
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > BODY_LIMIT:
            break
    return bytes(body)


def instance_in(body: bytes) -> str | None:
    """The instance that a health report names; None for whatever is no such report: a proxy's page, say."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    instance = document.get("session_server_instance_id") if isinstance(document, dict) else None
    return instance if isinstance(instance, str) and instance else None
