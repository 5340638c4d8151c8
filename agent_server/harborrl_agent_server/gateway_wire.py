"""Chat completions as they go through the gateway: pure documents in, pure documents out."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

AGENTS_OWN = frozenset(
    {"messages", "tools", "tool_choice", "parallel_tool_calls", "functions", "function_call", "stop", "stream"}
)
"""What an agent decides about its request. Everything else says how tokens are drawn, and that the training decides:
a policy that is sampled otherwise than it is trained is trained on somebody else's tokens."""

HARMLESS = frozenset({"model", "stream_options", "user", "metadata", "store", "extra_headers", "timeout"})
"""Left out without a word: none of it changes what is drawn."""


def upstream_body(asked: Mapping[str, Any], *, model: str, sampling_params: Mapping[str, Any]) -> dict[str, Any]:
    """The request to the session server: the agent's words, the training's sampling parameters, never a stream."""
    own = {key: value for key, value in asked.items() if key in AGENTS_OWN}
    body = {**own, **sampling_params, "model": model, "messages": asked["messages"]}
    body.pop("stream", None)
    return body


def overruled(asked: Mapping[str, Any], sampling_params: Mapping[str, Any]) -> set[str]:
    """What the agent set and does not get: names only, for a warning."""
    refused = {key for key in asked if key not in AGENTS_OWN | HARMLESS and asked[key] is not None}
    contested = {key for key in asked.keys() & sampling_params.keys() if key not in {"messages", "stream"}}
    return {key for key in refused | contested if asked[key] != sampling_params.get(key)}


def verbatim(messages: Sequence[Any], served: Sequence[Mapping[str, Any]], before: int) -> list[Any]:
    """The history with the model's own messages as it sent them, where the agent says the same in other words.

    Client libraries add fields and drop others (reasoning, nulls), and a session that keeps sampled tokens knows its
    history by the exact message. `before`: messages of an assistant that were there before the first turn (examples).
    """
    history, number = [], -before
    for message in messages:
        if isinstance(message, dict) and message.get("role") == "assistant":
            if 0 <= number < len(served) and said(message) == said(served[number]):
                message = served[number]  # noqa: PLW2901 - that is the point
            number += 1
        history.append(message)
    return history


def said(message: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """What a message says, whatever a library made of it: its text, and the functions it calls with what."""
    content = message.get("content") or ""
    if isinstance(content, list):
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    listed = message.get("tool_calls")
    calls = [call for call in listed if isinstance(call, dict)] if isinstance(listed, list) else []
    functions = [call.get("function") for call in calls]
    return str(content), [(f.get("name"), f.get("arguments")) for f in functions if isinstance(f, dict)]


def assistants(messages: Sequence[Any]) -> int:
    return sum(isinstance(message, dict) and message.get("role") == "assistant" for message in messages)


def completed(document: Mapping[str, Any], *, number: int, model: str) -> dict[str, Any]:
    """A completion with the envelope that clients insist on; a session server may leave it out."""
    envelope = {"id": f"chatcmpl-{number}", "object": "chat.completion", "created": 0, "model": model}
    return {**envelope, **document}


def streamed(document: Mapping[str, Any], *, with_usage: bool) -> Iterator[bytes]:
    """The events of a whole completion for a client that asked for a stream."""
    head = {**{key: document[key] for key in ("id", "created", "model")}, "object": "chat.completion.chunk"}
    choice = document["choices"][0]
    delta = {key: value for key, value in choice["message"].items() if value is not None}
    if "tool_calls" in delta:
        delta["tool_calls"] = [{"index": index, **call} for index, call in enumerate(delta["tool_calls"])]
    yield event({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    yield event({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": choice.get("finish_reason")}]})
    if with_usage:
        yield event({**head, "choices": [], "usage": document.get("usage")})
    yield b"data: [DONE]\n\n"


def event(document: Mapping[str, Any]) -> bytes:
    return f"data: {json.dumps(document)}\n\n".encode()


def failure(message: str, code: str) -> dict[str, Any]:
    """An error in the shape that clients of the API read."""
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": code}}
