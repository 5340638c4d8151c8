"""One request to the API server and its answer; what counts, fences or breaks requests wraps round this."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
from kubernetes.aio import client

from harborrl_operator.errors import NotLeadingError, UnansweredError

REQUEST_TIMEOUT_SECONDS = 30.0

READS = frozenset({"get", "list"})


@dataclass(frozen=True)
class Request:
    """In the words of RBAC, so that what is sent can be compared with what is granted."""

    verb: str
    """get, list, create, update, patch or delete."""
    kind: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    body: Mapping[str, Any] | None = None
    content_type: str = "application/json"


@dataclass(frozen=True)
class Answer:
    """Any HTTP answer, refusals included."""

    status: int
    text: str


Send = Callable[[Request], Awaitable[Answer]]
"""Raises UnansweredError when nothing came back: the server may have done what was asked."""

_METHODS = {"get": "GET", "list": "GET", "create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE"}


def over_http(api: client.ApiClient) -> Send:
    async def send(request: Request) -> Answer:
        serialized = await api.param_serialize(
            _METHODS[request.verb],
            request.path,
            query_params=list(request.query),
            header_params={"Accept": "application/json", "Content-Type": request.content_type},
            body=request.body,
            auth_settings=["BearerToken"],
        )
        try:
            response = await api.call_api(*serialized, _request_timeout=REQUEST_TIMEOUT_SECONDS)
            return Answer(response.status, (await response.read()).decode())
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UnansweredError(str(error) or type(error).__name__) from error

    return send


def fenced(send: Send, seconds_left: Callable[[], float]) -> Send:
    """Nothing is written by a process that may no longer act, nor by a request that would outlast its time."""

    async def guarded(request: Request) -> Answer:
        if request.verb in READS:
            return await send(request)
        left = seconds_left()
        if left <= 0:
            raise NotLeadingError(f"{request.verb} {request.kind} was not sent: another operator may lead by now")
        try:
            async with asyncio.timeout(left):
                return await send(request)
        except TimeoutError as error:
            raise UnansweredError(f"no answer within {left:.0f} s, after which another operator may lead") from error

    return guarded
