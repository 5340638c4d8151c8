"""Model requests from inside sandboxes: `/m/<token>/v1/...`, one token a trial, on a port where nothing else is."""

import asyncio
import contextlib
import hashlib
import secrets
import socket
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import httpx
import uvicorn
from pydantic_core import from_json
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from harborrl_agent_server.errors import ModelEndpointError, StartupError
from harborrl_agent_server.gateway_room import CONTEXT_EXCEEDED
from harborrl_agent_server.gateway_session import EpisodeOver, ModelSession, SessionClosedError
from harborrl_agent_server.gateway_upstream import Reply, TurnRefusedError
from harborrl_agent_server.gateway_wire import completed, failure, streamed
from harborrl_agent_server.listeners import BODY_SECONDS, Listener

BODY_LIMIT = 32 * 1024 * 1024
"""Bytes: a whole conversation, sent anew with every turn."""

AT_ONCE = 4
"""Requests of one trial: an agent has one, and whatever else runs in its sandbox may send them by the hundred. Each
holds its body while it waits for its turn."""

REMEMBERED = 10_000
"""Tokens of ended trials that are still told from invented ones."""


class Gateway:
    """The tokens of the trials that run, and the clients through which they reach their sessions."""

    def __init__(
        self, new_client: Callable[[], httpx.AsyncClient], mark: str = "", *, remembered: int = REMEMBERED
    ) -> None:
        """`new_client`: of one trial, which closes it. `mark`: what all tokens begin with."""
        self.new_client = new_client
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

    async def _models(self, request: Request) -> Response:
        try:
            model = self.session(request.path_params["token"]).upstream.model
        except REFUSALS as error:
            return refused(error)
        return JSONResponse({"object": "list", "data": [{"id": model, "object": "model", "created": 0}]})

    async def _chat(self, request: Request) -> Response:
        try:
            session = self.session(request.path_params["token"])
            with place_of(session):
                asked = await asked_of(request)
                reply = await while_connected(request, session.complete(asked))
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


async def asked_of(request: Request, limit_s: float = BODY_SECONDS) -> dict[str, Any]:
    body = bytearray()
    try:
        async with asyncio.timeout(limit_s):
            async for chunk in request.stream():
                body += chunk
                if len(body) > BODY_LIMIT:
                    raise BadRequestError(f"the body is larger than {BODY_LIMIT} bytes")
        asked = from_json(bytes(body), allow_inf_nan=False)
    except ClientDisconnect as error:
        raise BadRequestError("the client left before its body was complete") from error
    except TimeoutError as error:
        raise BadRequestError(f"the body was not complete within {limit_s:.0f} s") from error
    except ValueError as error:
        raise BadRequestError("the body is not JSON") from error
    if not isinstance(asked, dict) or not isinstance(asked.get("messages"), list):
        raise BadRequestError("the body needs a list `messages`")
    return asked


async def while_connected(request: Request, work: Awaitable[Reply]) -> Reply:
    """The reply; a client that hangs up, because its command was killed, takes its turn back."""
    turn = asyncio.ensure_future(work)
    left = asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait({turn, left}, return_when=asyncio.FIRST_COMPLETED)
        if not turn.done():
            raise SessionClosedError("the client has left")
        return turn.result()
    finally:
        left.cancel()
        turn.cancel()


@contextlib.asynccontextmanager
async def listening(gateway: Gateway, door: socket.socket, advertised: str) -> AsyncIterator[None]:
    """Serve sandboxes on a port of their own: they must not reach `/run`."""
    gateway.address = address_of(door, advertised)
    try:
        async with serving(gateway.app(), door):
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
async def serving(app: Starlette, listener: socket.socket) -> AsyncIterator[None]:
    config = uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=1)
    server = Listener(config)
    task = asyncio.ensure_future(server.serve(sockets=[listener]))
    try:
        yield
    finally:
        server.should_exit = True
        await task
