"""One request to the API server and its answer; what counts, fences or breaks requests wraps round this."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
from kubernetes.aio import client

from harborrl_operator.errors import NotLeadingError, UnansweredError

REQUEST_TIMEOUT_SECONDS = 30.0

APPLY = "application/apply-patch+yaml"

READS = frozenset({"get", "list"})

MOST_REFUSALS, LONGEST_WAIT_SECONDS = 10, 5.0
"""client-go asks ten times again as well; ours must also end within a pass."""


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
    retry_after: float = 1.0
    """Seconds that the API server asks to be left alone; its own default is one."""


Send = Callable[[Request], Awaitable[Answer]]
"""Raises UnansweredError when nothing came back: the server may have done what was asked."""

_METHODS = {"get": "GET", "list": "GET", "create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE"}


def over_http(api: client.ApiClient) -> Send:
    async def send(request: Request) -> Answer:
        is_yaml = request.content_type == APPLY
        # The client would write YAML as it writes JSON; what has a parameter it sends as it is.
        content_type = f"{APPLY}; charset=utf-8" if is_yaml else request.content_type
        serialized = await api.param_serialize(
            _METHODS[request.verb],
            request.path,
            query_params=list(request.query),
            header_params={"Accept": "application/json", "Content-Type": content_type},
            body=json_in_yaml(request.body) if is_yaml else request.body,
            auth_settings=["BearerToken"],
        )
        try:
            response = await api.call_api(*serialized, _request_timeout=REQUEST_TIMEOUT_SECONDS)
            return Answer(response.status, (await response.read()).decode(), _retry_after(response.headers))
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UnansweredError(str(error) or type(error).__name__) from error

    return send


def _retry_after(headers: Mapping[str, str]) -> float:
    wish = headers.get("Retry-After", "")
    return float(wish) if wish.isdecimal() else 1.0


def patient(send: Send, sleep: Callable[[float], Awaitable[None]]) -> Send:
    """Asks again after 429: the API server, or a watch cache that is being filled, did nothing of what was asked.

    A Lease is never waited for: who may not renew it must know at once.
    """

    async def asked_again(request: Request) -> Answer:
        for _ in range(MOST_REFUSALS):
            answer = await send(request)
            if answer.status != 429 or request.kind == "Lease":
                return answer
            await sleep(min(answer.retry_after, LONGEST_WAIT_SECONDS))
        return await send(request)

    return asked_again


def json_in_yaml(body: Mapping[str, Any] | None) -> str:
    """JSON that is YAML of the same text: YAML knows no pairs of surrogates, and no bare control characters.

    Half a pair becomes U+FFFD, as in JSON that the API server reads.
    """

    def escaped(found: re.Match[str]) -> str:
        code = ord(found[0])
        return f"\\u{0xFFFD if 0xD800 <= code <= 0xDFFF else code:04x}"

    return re.sub("[\x7f-\uffff]", escaped, json.dumps(body, ensure_ascii=False))


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
