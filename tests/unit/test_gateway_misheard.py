"""What a sandbox sends to the model gateway instead of a request: bounded in number and in what it costs."""

import asyncio

import pytest

from harborrl_agent_server.contract import ExitStatus
from harborrl_agent_server.gateway import AT_ONCE, MOST_VALUES, asked_of
from harborrl_agent_server.gateway_session import REFUSALS
from support.agent_http import eventually, replies
from support.model_gateway import HELLO, desk


@pytest.mark.parametrize("value", ["{},", "[],", '"",', "0,"])
def test_a_body_of_values_without_number_is_none_and_is_not_unpacked(value: str) -> None:
    body = ('{"messages": [' + value * (MOST_VALUES + 1) + "0]}").encode()
    assert asked_of(body) is None


def test_a_conversation_of_megabytes_is_one() -> None:
    text = "{'key': [1, 2, 3], 'other': \\\"text\\\"}, " * 100_000
    asked = asked_of(('{"messages": [{"role": "user", "content": "' + text + '"}]}').encode())
    assert asked is not None


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"messages": 1}', b'{"messages": [' + b"{}," * MOST_VALUES])
async def test_a_sandbox_that_keeps_sending_what_is_no_request_ends_its_trial(body: bytes) -> None:
    async with desk(replies("hi")) as it:
        assert (await it.ask()).status_code == 200
        told = [(await it.http.post(f"{it.url}/chat/completions", content=body)).status_code for _ in range(REFUSALS)]
        assert (it.session.end, it.session.over.is_set()) == (ExitStatus.AGENT_ERROR, True)
        assert (await it.ask()).status_code == 400
        assert len(it.server.requests) == 1
    assert told == [400] * REFUSALS


async def test_requests_that_wait_for_their_turn_are_not_unpacked_before_it() -> None:
    release = asyncio.Event()

    async def answer() -> str:
        await release.wait()
        return "hi"

    async with desk(lambda *_: answer()) as it:
        first = asyncio.ensure_future(it.ask())
        await eventually(it.session.reading.locked)
        no_json = [
            asyncio.ensure_future(it.http.post(f"{it.url}/chat/completions", content=b"{")) for _ in range(AT_ONCE - 1)
        ]
        await eventually(lambda: it.session.pending == AT_ONCE)
        assert not any(one.done() for one in no_json)
        release.set()
        assert (await first).status_code == 200
        assert [one.status_code for one in await asyncio.gather(*no_json)] == [400] * (AT_ONCE - 1)


async def test_too_many_at_once_are_no_fault_of_the_trials() -> None:
    release = asyncio.Event()

    async def answer() -> str:
        await release.wait()
        return "hi"

    async with desk(lambda *_: answer()) as it:
        waiting = [asyncio.ensure_future(it.ask()) for _ in range(AT_ONCE)]
        await eventually(lambda: it.session.pending == AT_ONCE)
        assert [(await it.ask()).status_code for _ in range(2 * REFUSALS)] == [400] * 2 * REFUSALS
        release.set()
        assert [one.status_code for one in await asyncio.gather(*waiting)] == [200] * AT_ONCE
        assert (await it.ask(messages=HELLO)).status_code == 200
    assert it.session.end is None
