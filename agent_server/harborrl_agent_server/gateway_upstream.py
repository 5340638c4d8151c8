"""One chat completion of the session server: what may be asked again, and what each of its refusals means."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import httpx
from pydantic_core import from_json

from harborrl_agent_server.endpoints import EndpointRefusedError
from harborrl_agent_server.errors import ModelEndpointError
from harborrl_agent_server.gateway_room import is_full

ATTEMPTS = 3
"""Requests for one turn at most; a server that fails three times in a row fails the trial, not the policy."""

BACKOFF_SECONDS = 1.0

ANSWER_LIMIT = 64 * 1024 * 1024
"""Bytes of one answer, unpacked: log probabilities of the longest replies take less."""

COUNT_LIMIT = 2**53
"""Tokens. No sequence is so long, and what is longer is no number to those who add it up."""

REFUSING = frozenset({400, 409, 413, 422})

ABORTED = "abort"
"""SGLang's finish reason of a generation that was broken off: what came is not the policy's turn."""


class TurnRefusedError(ModelEndpointError):
    """The session is there and refuses this very request: its history or its shape."""


class ContextLengthExceeded(Exception):  # noqa: N818 - a limit that was reached, and a normal end of a trial
    """The session has no room for another turn."""


@dataclass(frozen=True)
class Answer:
    """Whatever came, not yet understood."""

    status: int
    body: bytes

    @property
    def beginning(self) -> str:
        """For people. Always read as UTF-8: what an answer says of its own encoding may be nonsense."""
        return self.body[:300].decode(errors="replace")


@dataclass(frozen=True)
class Reply:
    document: dict[str, Any]
    """The whole completion as the server sent it."""
    message: dict[str, Any]
    """Exactly as the server sent it: the session's history must grow by this very object."""
    finish_reason: str | None
    total_tokens: int | None
    prompt_tokens: int | None
    completion_tokens: int | None

    @property
    def content(self) -> str:
        text = self.message.get("content")
        return text if isinstance(text, str) else ""


async def complete(
    client: httpx.AsyncClient,
    url: str,
    body: dict[str, Any],
    *,
    api_key: str,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> Reply:
    """POST one completion.

    Connection failures, 429 and 5xx are tried again, `ATTEMPTS` times in all. Everything else is final:
    no room for the turn raises `ContextLengthExceeded`, all other refusals `ModelEndpointError`
    (`TurnRefusedError` where the request itself may be to blame), as does a completion that was broken off.
    """
    said = ""
    for attempt in range(ATTEMPTS):
        if attempt:
            await sleep(BACKOFF_SECONDS * 2 ** (attempt - 1))
        try:
            answer = await answer_to(client, url, body, api_key=api_key)
        except EndpointRefusedError as error:
            raise ModelEndpointError(str(error)) from error
        except httpx.HTTPError as error:
            said = f"{type(error).__name__}: {error}"
            continue
        if answer.status == 200:
            return reply_from(answer)
        said = f"HTTP {answer.status}: {answer.beginning}"
        if answer.status == 429 or answer.status >= 500:
            continue
        if is_full(answer.status, answer.body):
            raise ContextLengthExceeded(said)
        refused = TurnRefusedError if answer.status in REFUSING else ModelEndpointError
        raise refused(f"{url} refused the turn, {said}; {advice(answer.status)}")
    raise ModelEndpointError(f"{url} failed {ATTEMPTS} times, last with {said}; look at the trainer's session server")


async def answer_to(client: httpx.AsyncClient, url: str, body: dict[str, Any], *, api_key: str) -> Answer:
    """Read to its end, or to the limit: it comes from wherever a request pointed."""
    headers = [(b"Authorization", f"Bearer {api_key}".strip().encode()), (b"Accept-Encoding", b"identity")]
    async with client.stream("POST", url, json=body, headers=headers) as response:
        received = bytearray()
        async for chunk in response.aiter_bytes():
            received += chunk
            if len(received) > ANSWER_LIMIT:
                raise ModelEndpointError(f"{url} answers more than {ANSWER_LIMIT} bytes; look at the session server")
        return Answer(response.status_code, bytes(received))


def reply_from(answer: Answer) -> Reply:
    """Strict, for the message goes back with every later turn: no NaN, no half characters, no bottomless nesting."""
    try:
        document = from_json(answer.body, allow_inf_nan=False)
        choice = document["choices"][0]
        message = choice["message"]
        usage = document.get("usage") or {}
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise no_completion(answer) from error
    if choice.get("finish_reason") == ABORTED:
        raise ModelEndpointError(
            "the inference engine broke the generation off (finish_reason abort): the trainer paused, stopped or "
            "updated it; the trial needs a fresh session"
        )
    if not is_message(message) or not isinstance(usage, dict):
        raise no_completion(answer)
    finish_reason = choice.get("finish_reason")
    prompt, completion = tokens(usage, "prompt_tokens"), tokens(usage, "completion_tokens")
    total = tokens(usage, "total_tokens")
    if total is None and prompt is not None and completion is not None:
        total = prompt + completion
    return Reply(
        document=document,
        message=message,
        finish_reason=finish_reason if isinstance(finish_reason, str) else None,
        total_tokens=total,
        prompt_tokens=prompt,
        completion_tokens=completion,
    )


def is_message(message: Any) -> bool:
    """What every agent can read: text or none, and calls that are objects."""
    if not isinstance(message, dict) or not isinstance(message.get("content"), str | None):
        return False
    calls = message.get("tool_calls")
    return calls is None or (isinstance(calls, list) and all(isinstance(call, dict) for call in calls))


def no_completion(answer: Answer) -> ModelEndpointError:
    return ModelEndpointError(f"the session server's answer is no chat completion: {answer.beginning}")


def tokens(usage: dict[str, Any], key: str) -> int | None:
    """What was not counted stays unknown: 0 would be a measurement."""
    count = usage.get(key)
    return count if isinstance(count, int) and not isinstance(count, bool) and 0 <= count < COUNT_LIMIT else None


def advice(status: int) -> str:
    if status == 404:
        return "the session is gone: the trainer restarted or deleted it, so the trial needs a fresh one"
    return "the request or its history does not fit the session; compare agent and session server versions"
