"""One chat completion of the session server: what may be asked again, and what each of its refusals means."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import httpx

from harborrl_agent_server.endpoints import EndpointRefusedError
from harborrl_agent_server.errors import ModelEndpointError

ATTEMPTS = 3
"""Requests for one turn at most; a server that fails three times in a row fails the trial, not the policy."""

BACKOFF_SECONDS = 1.0

REFUSING = frozenset({400, 409, 413, 422})

CONTEXT_EXCEEDED = "context_length_exceeded"

ABORTED = "abort"
"""SGLang's finish reason of a generation that was broken off: what came is not the policy's turn."""


class TurnRefusedError(ModelEndpointError):
    """The session is there and refuses this very request: its history or its shape."""


class ContextLengthExceeded(Exception):  # noqa: N818 - a limit that was reached, and a normal end of a trial
    """The session has no room for another turn."""


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
    400 with the code `context_length_exceeded` raises `ContextLengthExceeded`, all other refusals `ModelEndpointError`
    (`TurnRefusedError` where the request itself may be to blame), as does a completion that was broken off.
    """
    said = ""
    for attempt in range(ATTEMPTS):
        if attempt:
            await sleep(BACKOFF_SECONDS * 2 ** (attempt - 1))
        try:
            response = await client.post(url, json=body, headers={"Authorization": f"Bearer {api_key}"})
        except EndpointRefusedError as error:
            raise ModelEndpointError(str(error)) from error
        except httpx.HTTPError as error:
            said = f"{type(error).__name__}: {error}"
            continue
        if response.status_code == 200:
            return reply_from(response)
        said = f"HTTP {response.status_code}: {response.text[:300]}"
        if response.status_code == 429 or response.status_code >= 500:
            continue
        if response.status_code == 400 and CONTEXT_EXCEEDED in response.text:
            raise ContextLengthExceeded(said)
        refused = TurnRefusedError if response.status_code in REFUSING else ModelEndpointError
        raise refused(f"{url} refused the turn, {said}; {advice(response.status_code)}")
    raise ModelEndpointError(f"{url} failed {ATTEMPTS} times, last with {said}; look at the trainer's session server")


def reply_from(response: httpx.Response) -> Reply:
    try:
        document = response.json()
        choice = document["choices"][0]
        message = choice["message"]
        usage = document.get("usage") or {}
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise ModelEndpointError(f"the session server's answer is no chat completion: {response.text[:300]}") from error
    if choice.get("finish_reason") == ABORTED:
        raise ModelEndpointError(
            "the inference engine broke the generation off (finish_reason abort): the trainer paused, stopped or "
            "updated it; the trial needs a fresh session"
        )
    if not isinstance(message, dict) or not isinstance(usage, dict):
        raise ModelEndpointError(f"the session server's answer is no chat completion: {response.text[:300]}")
    prompt, completion = tokens(usage, "prompt_tokens"), tokens(usage, "completion_tokens")
    total = tokens(usage, "total_tokens")
    if total is None and prompt is not None and completion is not None:
        total = prompt + completion
    return Reply(
        document=document,
        message=message,
        finish_reason=choice.get("finish_reason"),
        total_tokens=total,
        prompt_tokens=prompt,
        completion_tokens=completion,
    )


def tokens(usage: dict[str, Any], key: str) -> int | None:
    """What was not counted stays unknown: 0 would be a measurement."""
    count = usage.get(key)
    return count if isinstance(count, int) and not isinstance(count, bool) and count >= 0 else None


def advice(status: int) -> str:
    if status == 404:
        return "the session is gone: the trainer restarted or deleted it, so the trial needs a fresh one"
    return "the request or its history does not fit the session; compare agent and session server versions"
