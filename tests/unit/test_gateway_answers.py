"""What a model endpoint may answer: whatever is no chat completion is its own fault, never a zero of the policy's."""

import gzip
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from harborrl_agent_server.errors import ModelEndpointError
from harborrl_agent_server.gateway_session import ModelSession, Upstream
from harborrl_agent_server.gateway_upstream import ANSWER_LIMIT, Reply

OK = '{"choices": [{"message": {"role": "assistant", "content": %s}, "finish_reason": "stop"}]}'
NO_COMPLETION = [
    b"[" * 200_000,
    (OK % ('{"a":' * 50_000 + "1" + "}" * 50_000)).encode(),
    (OK % ("[" * 900 + "]" * 900)).encode(),
    (OK % "NaN").encode(),
    (OK % '"half a character \\ud800"').encode(),
    (OK % "5").encode(),
    (OK % '[{"type": "text", "text": "hi"}]').encode(),
    b'{"choices": [{"message": {"content": "x", "tool_calls": 5}}]}',
    b'{"choices": [{"message": {"content": "x", "tool_calls": [5]}}]}',
    b'{"choices": [{"message": {"content": "x"}}], "usage": [1]}',
    b'{"choices": [{"message": {"content": "x"}}], "usage": {"total_tokens": 1%s}}' % (b"0" * 5000),
    b'{"choices": "abc"}',
    b"\xff\xfe",
    b"",
]


class Endpoint:
    """Answers every request alike, and keeps what was sent."""

    def __init__(self, *, status: int = 200, body: Any = b"", **headers: str) -> None:
        self.sent: list[httpx.Request] = []
        self.failure: ModelEndpointError | None = None
        """What the trial ends with."""
        self._status, self._body = status, body
        self._headers = {name.replace("_", "-"): value for name, value in headers.items()}

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.sent.append(request)
        return httpx.Response(self._status, content=self._body, headers=self._headers)

    async def answers(self, **upstream: Any) -> tuple[Reply, dict[str, Any]]:
        """The reply and what was counted; raises what an agent would be told."""
        progress: dict[str, Any] = {}
        async with httpx.AsyncClient(transport=httpx.MockTransport(self)) as client:
            access = Upstream(**{"url": "http://session/v1", "model": "m", **upstream})
            session = ModelSession(access, client, progress, [])
            session.open()
            try:
                return await session.complete({"messages": []}), progress
            finally:
                self.failure = session.failure


@pytest.mark.parametrize("body", NO_COMPLETION, ids=lambda body: repr(body[:40] + body[-20:]))
async def test_what_is_no_chat_completion_is_the_endpoints_fault(body: bytes) -> None:
    endpoint = Endpoint(body=body)
    with pytest.raises(ModelEndpointError, match="no chat completion") as told:
        await endpoint.answers()
    assert endpoint.failure is told.value


@pytest.mark.parametrize("charset", ["idna", "hex", "undefined", "zlib", "nonsense"])
async def test_a_refusal_in_an_encoding_that_is_none_is_still_a_refusal(charset: str) -> None:
    with pytest.raises(ModelEndpointError, match="HTTP 404: zz"):
        await Endpoint(status=404, body=b"zz", content_type=f"text/plain; charset={charset}").answers()


async def test_an_answer_without_end_is_not_read_to_its_end() -> None:
    read = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal read
        while True:
            read += 2**20
            yield b" " * 2**20

    with pytest.raises(ModelEndpointError, match="answers more than"):
        await Endpoint(body=endless()).answers()
    assert read <= ANSWER_LIMIT + 2 * 2**20


async def test_an_answer_that_unpacks_to_more_than_the_limit_is_refused() -> None:
    bomb = gzip.compress(b" " * (ANSWER_LIMIT + 1))
    with pytest.raises(ModelEndpointError, match="answers more than"):
        await Endpoint(body=bomb, content_encoding="gzip").answers()


async def test_no_endpoint_is_asked_to_pack_its_answer() -> None:
    endpoint = Endpoint(body=(OK % '"hi"').encode())
    await endpoint.answers()
    assert endpoint.sent[0].headers["accept-encoding"] == "identity"


async def test_numbers_of_tokens_that_nobody_can_add_up_were_not_measured() -> None:
    usage = {"prompt_tokens": 10**400, "completion_tokens": -1, "total_tokens": 2**53}
    body = json.dumps({**json.loads(OK % '"hi"'), "usage": usage}).encode()
    reply, progress = await Endpoint(body=body).answers()
    assert (reply.prompt_tokens, reply.completion_tokens, reply.total_tokens) == (None, None, None)
    assert "total_tokens" not in progress


@pytest.mark.parametrize(("key", "sent"), [("é", "Bearer é".encode()), ("", b"Bearer"), ("k", b"Bearer k")])
async def test_any_key_reaches_its_session(key: str, sent: bytes) -> None:
    endpoint = Endpoint(body=(OK % '"hi"').encode())
    await endpoint.answers(api_key=key)
    assert dict(endpoint.sent[0].headers.raw)[b"Authorization"] == sent


async def test_what_breaks_on_the_way_to_the_model_is_no_doing_of_the_policys() -> None:
    with pytest.raises(ModelEndpointError, match="the model cannot be asked"):
        await Endpoint().answers(url="http://a\nb/v1")
