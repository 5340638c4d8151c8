"""A listening model gateway with one trial's session behind it, and a session server that answers from a script."""

import contextlib
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx

from harborrl_agent_server.endpoints import HostRules
from harborrl_agent_server.gateway import Gateway, listening
from harborrl_agent_server.gateway import opened as free_port
from harborrl_agent_server.gateway_connect import model_client
from harborrl_agent_server.gateway_connections import Connections
from harborrl_agent_server.gateway_session import ModelSession, Upstream
from support.agent_http import Script, SessionServer, serving

TLS = ssl.create_default_context()
"""Made once: a client without one spends most of a small test on reading certificates."""

HELLO = [{"role": "user", "content": "hello"}]


@dataclass
class Desk:
    """What a test of the gateway talks to: `url` is the base URL that an agent in a sandbox is given."""

    gateway: Gateway
    session: ModelSession
    server: SessionServer
    progress: dict[str, Any]
    warnings: list[str]
    url: str
    http: httpx.AsyncClient = field(repr=False)

    async def ask(self, **changes: Any) -> httpx.Response:
        body = {"model": "whatever", "messages": HELLO, **changes}
        return await self.http.post(f"{self.url}/chat/completions", json=body)


@contextlib.asynccontextmanager
async def desk(
    script: Script, *, opened: bool = True, connections: Connections | None = None, **upstream: Any
) -> AsyncIterator[Desk]:
    server = SessionServer(script)
    progress: dict[str, Any] = {}
    warnings: list[str] = []
    async with (
        serving(server.app) as session_url,
        model_client(HostRules(), httpx.AsyncHTTPTransport(verify=TLS)) as client,
        httpx.AsyncClient(timeout=60, verify=TLS) as http,
    ):
        gateway = Gateway(lambda: client, connections=connections)
        access = Upstream(url=f"{session_url}/sessions/s1/v1", model="policy", **upstream)
        session = ModelSession(access, client, progress, warnings)
        if opened:
            session.open()
        async with listening(gateway, free_port("127.0.0.1", 0), "127.0.0.1"):
            with gateway.admitted(session) as url:
                yield Desk(gateway, session, server, progress, warnings, url, http)
