"""A reverse proxy between an operator and a real API server that breaks what it is told to break; loopback only.

Every request is recorded in the words of RBAC. A client that brings a token is passed on with it; one without is the
administrator.
"""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import web
from devcluster.controlplane import RunningControlPlane, admin_tls

_HOP = {"host", "transfer-encoding", "connection", "content-length", "content-encoding", "accept-encoding"}


@dataclass(frozen=True)
class Call:
    """One request."""

    verb: str
    resource: str
    """`pods`, `deployments.apps`, `harborrljobs.harborrl.dev/status`; empty for what is no resource."""
    namespace: str
    name: str

    @property
    def is_watch(self) -> bool:
        return self.verb == "watch"


@dataclass
class Fault:
    """What happens to the calls that match, the first `times` of them."""

    matches: Callable[[Call], bool]
    status: int = 0
    """Answer with this status instead of asking the server."""
    error_event: int = 0
    """In a watch: an ERROR event of this code, then the end."""
    silence: bool = False
    """Take the request, or go on with the stream, and never say anything again."""
    times: float = float("inf")
    hits: int = 0

    def strikes(self, call: Call) -> bool:
        if self.hits >= self.times or not self.matches(call):
            return False
        self.hits += 1
        return True


@dataclass(frozen=True)
class Delay:
    """Answers that match, and what their watches tell, arrive this much later than the server sent them, or more."""

    matches: Callable[[Call], bool]
    seconds: float


@dataclass
class FaultProxy:
    """`url` is what the operator is given."""

    plane: RunningControlPlane
    calls: list[Call] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    delays: list[Delay] = field(default_factory=list)
    port: int = 0
    _streams: list[tuple[Call, "asyncio.Future[bool]"]] = field(default_factory=list)
    """Open watches; the future is set to True to cut one, to False to make it silent."""
    _site: web.TCPSite | None = None
    _runner: web.AppRunner | None = None
    _client: aiohttp.ClientSession | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        app = web.Application(client_max_size=8 << 20)
        app.router.add_route("*", "/{path:.*}", self._pass)
        self._client = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), auto_decompress=True)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await self.come_back()

    async def stop(self) -> None:
        assert self._runner is not None
        assert self._client is not None
        await self._runner.cleanup()
        await self._client.close()

    async def go_away(self) -> None:
        """Refuse connections and cut those that are open."""
        assert self._runner is not None
        assert self._site is not None
        await self._site.stop()
        server = self._runner.server
        assert server is not None
        await server.shutdown(0.1)

    async def come_back(self) -> None:
        assert self._runner is not None
        self._site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await self._site.start()
        self.port = self._runner.addresses[-1][1]

    def mute(self, matches: Callable[[Call], bool]) -> int:
        """Open watch streams that match say nothing from now on, and do not end: a half-open connection."""
        return self._tell(matches, is_cut=False)

    def cut(self, matches: Callable[[Call], bool]) -> int:
        """Open watch streams that match end, as they do now and then; the client asks again."""
        return self._tell(matches, is_cut=True)

    def _tell(self, matches: Callable[[Call], bool], *, is_cut: bool) -> int:
        chosen = [told for call, told in self._streams if matches(call) and not told.done()]
        for told in chosen:
            told.set_result(is_cut)
        return len(chosen)

    async def _pass(self, request: web.Request) -> web.StreamResponse:
        call = call_of(request.method, request.path, request.query.get("watch") == "true")
        self.calls.append(call)
        fault = next((fault for fault in self.faults if fault.strikes(call)), None)
        if fault is not None:
            if fault.silence:
                await asyncio.Event().wait()
            if fault.status:
                return web.json_response(_status(fault.status), status=fault.status)
            return await self._error_event(request, fault.error_event)
        return await self._forward(request, call)

    async def _forward(self, request: web.Request, call: Call) -> web.StreamResponse:
        assert self._client is not None
        headers = {key: value for key, value in request.headers.items() if key.lower() not in _HOP}
        answer = await self._client.request(
            request.method,
            self.plane.url + request.raw_path,
            headers=headers,
            data=await request.read() or None,
            ssl=self._tls("Authorization" in request.headers),
            timeout=aiohttp.ClientTimeout(total=None),
        )
        async with answer:
            kept = {key: value for key, value in answer.headers.items() if key.lower() not in _HOP}
            if not call.is_watch:
                body = await answer.read()
                await self._be_late(call)
                return web.Response(status=answer.status, headers=kept, body=body)
            out = web.StreamResponse(status=answer.status, headers=kept)
            await out.prepare(request)
            await self._stream(answer, out, call)
            return out

    async def _stream(self, answer: aiohttp.ClientResponse, out: web.StreamResponse, call: Call) -> None:
        told: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        entry = (call, told)
        self._streams.append(entry)
        try:
            while True:
                read = asyncio.ensure_future(answer.content.readany())
                await asyncio.wait((read, told), return_when=asyncio.FIRST_COMPLETED)
                if told.done():
                    read.cancel()
                    if told.result():
                        return
                    await asyncio.Event().wait()
                chunk = read.result()
                if not chunk:
                    return
                await self._be_late(call)
                await out.write(chunk)
        finally:
            self._streams.remove(entry)

    async def _be_late(self, call: Call) -> None:
        await asyncio.sleep(max((delay.seconds for delay in self.delays if delay.matches(call)), default=0.0))

    async def _error_event(self, request: web.Request, code: int) -> web.StreamResponse:
        out = web.StreamResponse(headers={"Content-Type": "application/json"})
        await out.prepare(request)
        await out.write(json.dumps({"type": "ERROR", "object": _status(code)}).encode() + b"\n")
        return out

    def _tls(self, with_token: bool) -> ssl.SSLContext:
        pki = self.plane.directory / "pki"
        return ssl.create_default_context(cafile=str(pki / "ca.crt")) if with_token else admin_tls(pki)


@contextlib.asynccontextmanager
async def fault_proxy(plane: RunningControlPlane) -> AsyncIterator[FaultProxy]:
    proxy = FaultProxy(plane)
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.stop()


def call_of(method: str, path: str, watch: bool) -> Call:
    """As the API server's own request info reads it."""
    parts = path.strip("/").split("/")
    if parts[0] not in ("api", "apis") or len(parts) < (3 if parts[0] == "api" else 4):
        return Call("get", "", "", path)
    group, rest = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    elif rest[0] == "namespaces" and len(rest) == 2:
        namespace = rest[1]
    name = rest[1] if len(rest) > 1 else ""
    resource = rest[0] + (f".{group}" if group else "") + (f"/{rest[2]}" if len(rest) > 2 else "")
    verbs = {"GET": "get" if name else "list", "POST": "create", "PUT": "update", "PATCH": "patch"}
    return Call("watch" if watch else verbs.get(method, "delete"), resource, namespace, name)


def _status(code: int) -> dict[str, Any]:
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": "injected"}
