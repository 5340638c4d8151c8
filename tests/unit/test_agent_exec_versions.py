"""API servers that speak only some versions of the exec protocol, or none for a while."""

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from aiohttp import web
from kubernetes.aio import client

from harborrl_agent_server.errors import SandboxTransportError
from harborrl_agent_server.sandboxes.allocating import Pod
from harborrl_agent_server.sandboxes.cluster import Cluster
from harborrl_agent_server.sandboxes.pod_exec import CONNECT_ATTEMPTS, PodExec
from harborrl_agent_server.sandboxes.streams import Capture
from harborrl_agent_server.sandboxes.watch import PodView
from harborrl_agent_server.sandboxes.wire import STATUS, STDIN, STDOUT, V4, V5

OK = b'{"status":"Success"}'


@dataclass
class ApiServer:
    """Runs no command: it says back what came on standard input, or `ran`."""

    speaks: tuple[str, ...]
    refuses: int = 0
    """So many handshakes, before it takes one."""
    is_silent: bool = False
    """It takes connections, and answers no handshake."""
    asked: list[str] = field(default_factory=list)

    async def exec(self, request: web.Request) -> web.StreamResponse:
        wanted = request.headers["sec-websocket-protocol"]
        self.asked.append(wanted)
        if self.is_silent:
            await asyncio.Event().wait()
        if wanted not in self.speaks or len(self.asked) <= self.refuses:
            return web.Response(status=403, text="unable to upgrade: no protocol in common")
        socket = web.WebSocketResponse(protocols=self.speaks)
        await socket.prepare(request)
        said = b"ran"
        if request.query.get("stdin"):
            frame = await socket.receive_bytes()
            assert frame[0] == STDIN
            said = frame[1:]
        await socket.send_bytes(bytes([STDOUT]) + said)
        await socket.send_bytes(bytes([STATUS]) + OK)
        await socket.close()
        return socket


@asynccontextmanager
async def way_into(server: ApiServer) -> AsyncIterator[PodExec]:
    app = web.Application()
    app.router.add_get("/api/v1/namespaces/ns/pods/pod/exec", server.exec)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    cluster = Cluster(client.Configuration(host=f"http://{host}:{port}"))
    try:
        yield PodExec(cluster, "ns")
    finally:
        await cluster.close()
        await runner.cleanup()


async def run(way: PodExec, stdin: bytes | None = None) -> tuple[int, str]:
    out = Capture(1000)
    source = None if stdin is None else io.BytesIO(stdin)
    code = await way.stream(Pod("pod", "uid", PodView()), ["cat"], stdin=source, stdout=out, stderr=Capture(10))
    return code, out.text()


async def test_a_server_that_knows_only_v4_is_spoken_to_in_v4_from_then_on() -> None:
    server = ApiServer((V4,))
    async with way_into(server) as way:
        assert await run(way) == (0, "ran")
        assert await run(way, b"data") == (0, "data")
    assert server.asked == [V5, V4, V4]


async def test_a_server_that_knows_v5_is_asked_for_nothing_else() -> None:
    server = ApiServer((V5,))
    async with way_into(server) as way:
        assert await run(way, b"data") == (0, "data")
        assert await run(way) == (0, "ran")
    assert server.asked == [V5, V5]


async def test_a_refused_handshake_has_run_nothing_and_is_tried_again() -> None:
    server = ApiServer((V5, V4), refuses=3)
    async with way_into(server) as way:
        assert await run(way) == (0, "ran")
    assert server.asked == [V5, V4, V5, V4]


async def test_a_server_that_takes_no_handshake_is_a_broken_way_and_no_exit_code() -> None:
    server = ApiServer(())
    async with way_into(server) as way:
        with pytest.raises(SandboxTransportError, match="was refused"):
            await run(way)
    assert len(server.asked) == 2 * CONNECT_ATTEMPTS


async def test_an_unanswered_handshake_may_have_run_something_and_is_not_tried_again() -> None:
    server = ApiServer((V5,), is_silent=True)
    async with way_into(server) as way:
        way.handshake_s = 0.2
        with pytest.raises(SandboxTransportError, match="did not answer within"):
            await run(way)
    assert server.asked == [V5]
