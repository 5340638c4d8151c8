"""Model requests from inside sandboxes: `/m/<token>/v1/...`, one token a trial, on a port where nothing else is."""

import asyncio
import contextlib
import hashlib
import secrets
import socket
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from typing import Any, cast

import httpx
import uvicorn
from pydantic_core import from_json
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from harborrl_agent_server.errors import ModelEndpointError, StartupError
from harborrl_agent_server.gateway_connections import Connections, GatewayProtocol
from harborrl_agent_server.gateway_room import CONTEXT_EXCEEDED
from harborrl_agent_server.gateway_session import EpisodeOver, ModelSession, SessionClosedError
from harborrl_agent_server.gateway_upstream import Reply, TurnRefusedError
from harborrl_agent_server.gateway_wire import completed, failure, streamed
from harborrl_agent_server.listeners import BODY_SECONDS, Listener

BODY_LIMIT = 32 * 1024 * 1024
"""Bytes: a whole conversation, sent anew with every turn."""

MOST_VALUES = 2_000_000
"""Of a body's JSON, roughly: the longest conversation has half as many commas, and 32 MiB of nothing but `{},` took the
event loop a second and 900 MB."""

AT_ONCE = 4
"""Requests of one trial: an agent has one, and whatever else runs in its sandbox may send them by the hundred. Each
holds its body while it waits for its turn."""

REMEMBERED = 10_000
"""Tokens of ended trials that are still told from invented ones."""

BACKLOG = 128
"""Connections that are taken in one go, before any of them can be judged."""


class Gateway:
    """The tokens of the trials that run, and the clients through which they reach their sessions."""

    def __init__(
        self,
        new_client: Callable[[], httpx.AsyncClient],
        mark: str = "",
        *,
        remembered: int = REMEMBERED,
        connections: Connections | None = None,
    ) -> None:
        """`new_client`: of one trial, which closes it. `mark`: what all tokens begin with."""
        self.new_client = new_client
        self.connections = connections or Connections()
        self._mark = mark
        self._remembered = remembered
        self.address = ""
        """Where sandboxes find it: `http://HOST:PORT`; empty while it does not listen."""
        self._live: dict[bytes, ModelSession] = {}
        self._ended: OrderedDict[bytes, None] = OrderedDict()

    @contextlib.contextmanager
    def admitted(self, session: ModelSession) -> Iterator[str]:
        """The base URL of one session, for as long as it lasts. Whoever has it may ask: it is never written down."""
        token = f"{self._mark}{secrets.token_hex(16)}"
        key = digest(token)
        self._live[key] = session
        try:
            yield f"{self.address}/m/{token}/v1"
        finally:
            del self._live[key]
            self._ended[key] = None
            if len(self._ended) > self._remembered:
                self._ended.popitem(last=False)

    def session(self, token: str) -> ModelSession:
        """Raises `SessionClosedError` for a trial that is over, `UnknownTokenError` for a token that never was."""
        key = digest(token)
        if key in self._ended:
            raise SessionClosedError("this trial is over")
        if key not in self._live:
            raise UnknownTokenError("unknown token")
        return self._live[key]

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/m/{token}/v1/chat/completions", self._chat, methods=["POST"]),
                Route("/m/{token}/v1/models", self._models, methods=["GET"]),
            ]
        )

    def _shown(self, request: Request) -> ModelSession:
        token = request.path_params["token"]
        session = self.session(token)
        self.connections.knows(request.client, token)
        return session

    async def _models(self, request: Request) -> Response:
        try:
            model = self._shown(request).upstream.model
        except REFUSALS as error:
            return refused(error)
        return JSONResponse({"object": "list", "data": [{"id": model, "object": "model", "created": 0}]})

    async def _chat(self, request: Request) -> Response:
        try:
            session = self._shown(request)
            with place_of(session):
                body = await body_of(request, session)
                asked, reply = await while_connected(request, turn(session, body))
        except REFUSALS as error:
            return refused(error)
        document = completed(reply.document, number=session.turns, model=session.upstream.model)
        if not asked.get("stream"):
            return JSONResponse(document)
        options = asked.get("stream_options")
        with_usage = isinstance(options, dict) and bool(options.get("include_usage"))
        return StreamingResponse(streamed(document, with_usage=with_usage), media_type="text/event-stream")


class UnknownTokenError(Exception):
    """Nobody was given this token."""


class BadRequestError(Exception):
    """The agent's request is no chat completion."""


REFUSALS = (UnknownTokenError, BadRequestError, SessionClosedError, EpisodeOver, ModelEndpointError)


def digest(token: str) -> bytes:
    """Compared instead of the token, so that the time a comparison takes says nothing about one."""
    return hashlib.sha256(token.encode(errors="replace")).digest()


def refused(error: Exception) -> Response:
    """What an agent is told. No status that its client library would try again: the session has tried already."""
    match error:
        case UnknownTokenError():
            return JSONResponse(failure(str(error), "invalid_api_key"), 401)
        case SessionClosedError():
            return JSONResponse(failure(str(error), "trial_over"), 410)
        case EpisodeOver():
            text = f"This model's maximum context length is reached: {error}"
            return JSONResponse(failure(text, CONTEXT_EXCEEDED), 400)
        case TurnRefusedError():
            return JSONResponse(failure("the session refuses this history", "invalid_request"), 400)
        case ModelEndpointError():
            return JSONResponse(failure("the model's endpoint failed; the trial is over", "model_endpoint_failed"), 403)
        case _:
            # Of a body that is not read to its end the rest would come for as long as the agent likes.
            return JSONResponse(failure(str(error), "invalid_request"), 400, headers={"Connection": "close"})


@contextlib.contextmanager
def place_of(session: ModelSession) -> Iterator[None]:
    if session.pending >= AT_ONCE:
        raise BadRequestError(f"{AT_ONCE} requests of this trial are under way; a session's history is one line")
    session.pending += 1
    try:
        yield
    finally:
        session.pending -= 1


async def body_of(request: Request, session: ModelSession, limit_s: float = BODY_SECONDS) -> bytes:
    """Raises `BadRequestError`, and tells the session of it, for what does not come or does not end."""
    body = bytearray()
    try:
        async with asyncio.timeout(limit_s):
            async for chunk in request.stream():
                body += chunk
                if len(body) > BODY_LIMIT:
                    raise misheard(session, f"the body is larger than {BODY_LIMIT} bytes")
    except ClientDisconnect as error:
        raise misheard(session, "the client left before its body was complete") from error
    except TimeoutError as error:
        raise misheard(session, f"the body was not complete within {limit_s:.0f} s") from error
    return bytes(body)


async def turn(session: ModelSession, body: bytes) -> tuple[dict[str, Any], Reply]:
    """What was asked, and the answer; one body at a time is unpacked."""
    async with session.reading:
        asked = asked_of(body)
        if asked is None:
            raise misheard(session, "the body needs to be JSON with a list `messages`, of a conversation's size")
        return asked, await session.complete(asked)


def asked_of(body: bytes) -> dict[str, Any] | None:
    """None for what is no chat completion."""
    if sum(body.count(mark) for mark in (b",", b"{", b"[")) > MOST_VALUES:
        return None
    try:
        asked = from_json(body, allow_inf_nan=False)
    except ValueError:
        return None
    return asked if isinstance(asked, dict) and isinstance(asked.get("messages"), list) else None


def misheard(session: ModelSession, what: str) -> BadRequestError:
    session.misheard()
    return BadRequestError(what)


async def while_connected[Result](request: Request, work: Awaitable[Result]) -> Result:
    """The result; a client that hangs up, because its command was killed, takes its turn back."""
    working = asyncio.ensure_future(work)
    left = asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait({working, left}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise SessionClosedError("the client has left")
        return working.result()
    finally:
        left.cancel()
        working.cancel()


@contextlib.asynccontextmanager
async def listening(gateway: Gateway, door: socket.socket, advertised: str) -> AsyncIterator[None]:
    """Serve sandboxes on a port of their own: they must not reach `/run`."""
    gateway.address = address_of(door, advertised)
    try:
        async with serving(gateway.app(), door, gateway.connections):
            yield
    finally:
        gateway.address = ""


def opened(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), reuse_port=False, backlog=1024)
    except OSError as error:
        raise StartupError(f"--gateway-port {port} on {host}: {error.strerror}; choose another") from error


def address_of(listener: socket.socket, advertised: str) -> str:
    shown = f"[{advertised}]" if ":" in advertised else advertised
    return f"http://{shown}:{listener.getsockname()[1]}"


@contextlib.asynccontextmanager
async def serving(app: Starlette, listener: socket.socket, connections: Connections) -> AsyncIterator[None]:
    """No header says who somebody is (`proxy_headers`), and nothing but HTTP is spoken (`ws`)."""
    config = uvicorn.Config(
        app,
        http=cast("type[asyncio.Protocol]", partial(GatewayProtocol, connections)),
        ws="none",
        proxy_headers=False,
        log_level="warning",
        access_log=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=1,
    )
    server = Listener(config)
    task = asyncio.ensure_future(server.serve(sockets=[listener]))
    try:
        yield
    finally:
        server.should_exit = True
        await task
