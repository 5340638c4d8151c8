"""The model gateway over real HTTP: what reaches the session server, what an agent is told, and who may ask when."""

import asyncio
import json
from typing import Any

import httpx
import openai
import pytest
from fastapi.responses import JSONResponse

from harborrl_agent_server.gateway import AT_ONCE, Gateway
from harborrl_agent_server.gateway_session import SessionClosedError
from support.agent_http import completion, eventually, replies
from support.failing_sessions import failing
from support.model_gateway import HELLO, desk


async def test_the_training_decides_how_tokens_are_drawn_whatever_the_agent_says() -> None:
    sampling = {"temperature": 0.8, "top_p": 1.0, "max_tokens": 64, "top_k": -1, "seed": 7}
    async with desk(replies("hi"), sampling_params=sampling) as it:
        answer = await it.ask(temperature=0, top_p=0.1, n=4, logit_bias={"1": 100}, response_format={"type": "json"})
        sent = it.server.requests[0]
    assert answer.status_code == 200
    assert sent == {"messages": HELLO, "model": "policy", "session": "s1", **sampling}
    assert {warning.split(": ")[1] for warning in it.warnings} == {
        "temperature",
        "top_p",
        "n",
        "logit_bias",
        "response_format",
    }


async def test_what_an_agent_says_about_tools_goes_through_and_is_no_warning() -> None:
    tools = [{"type": "function", "function": {"name": "bash", "parameters": {}}}]
    own = {"tools": tools, "tool_choice": "auto", "parallel_tool_calls": False, "stop": ["Observation:"]}
    async with desk(replies("hi"), sampling_params={"temperature": 1.0}) as it:
        await it.ask(**own, user="me", temperature=1.0)
        assert it.server.requests[0] == {
            **own,
            "messages": HELLO,
            "model": "policy",
            "session": "s1",
            "temperature": 1.0,
        }
        assert it.warnings == []


async def test_the_agents_key_is_not_the_sessions() -> None:
    seen: list[str] = []

    async def note(request: httpx.Request) -> None:
        seen.append(request.headers["authorization"])

    async with desk(replies("hi"), api_key="sk-real") as it:
        it.gateway.new_client().event_hooks = {"request": [note]}
        headers = {"Authorization": "Bearer agents-own"}
        await it.http.post(f"{it.url}/chat/completions", json={"messages": HELLO}, headers=headers)
    assert seen == ["Bearer sk-real"]


async def test_turns_tool_calls_tokens_and_model_time_are_counted() -> None:
    calls = [{"id": "1", "type": "function", "function": {"name": "bash", "arguments": "{}"}}] * 2
    script = replies(completion("", total_tokens=10, tool_calls=calls), completion("done", total_tokens=25))
    async with desk(script) as it:
        for _ in range(2):
            assert (await it.ask(tools=[{}])).status_code == 200
    time = it.progress.pop("model_query_time_sum")
    assert it.progress == {
        "turns": 2,
        "tool_calls": 2,
        "completion_tokens": 6,
        "total_tokens": 25,
        "model_query_time_avg": time / 2,
    }
    assert time > 0


async def test_what_is_not_measured_is_left_out() -> None:
    bare = JSONResponse({"choices": [{"message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}]})
    async with desk(lambda *_: bare, max_seq_len=100) as it:
        await it.ask()
    assert it.progress.keys() == {"turns", "model_query_time_sum", "model_query_time_avg"}
    assert "reports no usage" in it.warnings[0]


async def test_a_full_sequence_ends_within_one_turn_and_its_last_turn_is_delivered() -> None:
    async with desk(
        replies(completion("ls", total_tokens=99), completion("pwd", total_tokens=100)), max_seq_len=100
    ) as it:
        told = [await it.ask() for _ in range(4)]
        assert [answer.status_code for answer in told] == [200, 200, 400, 400]
        assert len(it.server.requests) == 2
    assert told[2].json()["error"]["code"] == "context_length_exceeded"
    assert it.progress["end"] == "SequenceLengthLimitExceeded"


async def test_a_reply_cut_by_length_is_never_delivered_and_nothing_is_asked_after_it() -> None:
    async with desk(replies(completion("rm -rf /tmp/x", finish_reason="length"))) as it:
        told = [await it.ask() for _ in range(3)]
        assert len(it.server.requests) == 1
    assert [(answer.status_code, answer.json()["error"]["code"]) for answer in told] == [
        (400, "context_length_exceeded")
    ] * 3
    assert "rm -rf" not in told[0].text
    assert it.session.over.is_set()


@pytest.mark.parametrize(
    ("status", "code", "told", "requests"),
    [
        pytest.param(400, "context_length_exceeded", 400, 1, id="a full context"),
        pytest.param(404, "unknown", 403, 1, id="a session that is gone"),
        pytest.param(400, "not_append_only", 403, 1, id="a history that the session refuses"),
        pytest.param(500, "boom", 403, 3, id="a server that fails"),
    ],
)
async def test_a_failing_session_is_asked_a_bounded_number_of_times(
    status: int, code: str, told: int, requests: int
) -> None:
    async with desk(failing(status, code)) as it:
        answers = [await it.ask() for _ in range(5)]
        assert len(it.server.requests) == requests
    assert {answer.status_code for answer in answers} == {told}
    assert (it.session.failure is None) is (told == 400)


async def test_a_wrong_token_is_401_and_that_of_an_ended_trial_410() -> None:
    async with desk(replies("hi")) as it:
        with it.gateway.admitted(it.session) as second:
            pass
        statuses = [
            (await it.http.post(f"{base}/chat/completions", json={"messages": HELLO})).status_code
            for base in (f"{it.gateway.address}/m/{'0' * 32}/v1", second, f"{it.gateway.address}/m/%00%ff/v1", it.url)
        ]
        listed = [(await it.http.get(f"{base}/models")).status_code for base in (second, it.url)]
    assert statuses == [401, 410, 401, 200]
    assert listed == [410, 200]


async def test_before_and_after_the_agents_phase_nobody_is_answered() -> None:
    async with desk(replies("hi"), opened=False) as it:
        before = await it.ask()
        it.session.open()
        during = await it.ask()
        it.session.close()
        after = await it.ask()
        assert len(it.server.requests) == 1
    assert [answer.status_code for answer in (before, during, after)] == [410, 200, 410]


async def test_the_end_of_the_phase_breaks_the_upstream_request_off() -> None:
    async with desk(silent(started := asyncio.Event(), left := asyncio.Event())) as it:
        asked = asyncio.ensure_future(it.ask())
        await started.wait()
        it.session.close()
        assert (await asked).status_code == 410
        await asyncio.wait_for(left.wait(), 10)


async def test_an_agent_that_hangs_up_takes_its_turn_back() -> None:
    async with desk(silent(started := asyncio.Event(), left := asyncio.Event())) as it:
        asked = asyncio.ensure_future(it.ask())
        await started.wait()
        asked.cancel()
        await asyncio.wait_for(left.wait(), 10)
        it.server.script = replies("again")
        assert (await it.ask()).json()["choices"][0]["message"]["content"] == "again"


def silent(started: asyncio.Event, left: asyncio.Event) -> Any:
    """A model that never answers and notes when it is no longer asked."""

    async def answer() -> str:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            left.set()
        return ""

    return lambda *_: answer()


async def test_two_requests_at_once_reach_the_session_one_after_the_other() -> None:
    at_once, peak = 0, 0

    async def answer() -> str:
        nonlocal at_once, peak
        at_once += 1
        peak = max(peak, at_once)
        await asyncio.sleep(0)
        at_once -= 1
        return "hi"

    async with desk(lambda *_: answer()) as it:
        answers = await asyncio.gather(*(it.ask() for _ in range(4)))
    assert ([answer.status_code for answer in answers], peak) == ([200] * 4, 1)


async def test_a_sandbox_cannot_fill_the_memory_with_requests_that_wait() -> None:
    async with desk(silent(started := asyncio.Event(), asyncio.Event())) as it:
        waiting = [asyncio.ensure_future(it.ask()) for _ in range(AT_ONCE)]
        await started.wait()
        await eventually(lambda: it.session.pending == AT_ONCE)
        refused = await it.ask()
        for one in waiting:
            one.cancel()
        await eventually(lambda: it.session.pending == 0)
        it.server.script = replies("again")
        assert (await it.ask()).status_code == 200
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_request")
    assert len(it.server.requests) == 2


async def test_a_streaming_client_gets_a_stream_of_the_same_reply() -> None:
    calls = [{"id": "1", "type": "function", "function": {"name": "bash", "arguments": '{"command":"ls"}'}}]
    async with desk(replies(completion("hello", reasoning_content="hm", tool_calls=calls))) as it:
        answer = await it.ask(stream=True, stream_options={"include_usage": True})
        assert "stream" not in it.server.requests[0]
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line]
    assert events.pop() == "[DONE]"
    chunks = [json.loads(event) for event in events]
    first = chunks[0]["choices"][0]["delta"]
    assert (first["content"], first["reasoning_content"], first["tool_calls"]) == (
        "hello",
        "hm",
        [{"index": 0, **calls[0]}],
    )
    assert chunks[1]["choices"][0]["finish_reason"] == "stop"
    assert chunks[2]["usage"]["total_tokens"] == 10
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}


@pytest.mark.parametrize("stream", [False, True])
async def test_the_client_library_that_agents_use_reads_what_the_gateway_says(stream: bool) -> None:
    calls = [{"id": "1", "type": "function", "function": {"name": "bash", "arguments": '{"command":"ls"}'}}]
    full = completion("", finish_reason="length")
    async with desk(replies(completion("hello", tool_calls=calls), full), api_key="sk-real") as it:
        async with openai.AsyncOpenAI(base_url=it.url, api_key="none", max_retries=5, http_client=it.http) as client:
            ask: Any = client.chat.completions.create
            answer = await ask(model="m", messages=HELLO, stream=stream)
            chunks = [chunk async for chunk in answer] if stream else []
            first = chunks[0].choices[0].delta if stream else answer.choices[0].message
            assert (first.content, first.tool_calls[0].function.arguments) == ("hello", '{"command":"ls"}')
            with pytest.raises(openai.BadRequestError) as refusal:
                await ask(model="m", messages=HELLO, stream=stream)
            it.session.close()
            with pytest.raises(openai.APIStatusError, match="410"):
                await ask(model="m", messages=HELLO, stream=stream)
        assert len(it.server.requests) == 2
    assert refusal.value.code == "context_length_exceeded"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'{"messages": 3}',
        b"[" * 200_000,
        b"\xff\xfe",
        b'{"messages": [], "seed": NaN}',
        b'{"messages": [{"role": "user", "content": "\\ud800"}]}',
        b'{"messages": [], "\\ud800": 1}',
    ],
    ids=lambda body: repr(body[:8]),
)
async def test_what_is_no_completion_request_is_told_so_and_reaches_nobody(body: bytes) -> None:
    async with desk(replies("hi")) as it:
        answer = await it.http.post(f"{it.url}/chat/completions", content=body)
        assert it.server.requests == []
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")


@pytest.mark.parametrize("calls", [5, "text", [5], {"a": 1}, [{"function": 7}]])
async def test_odd_tool_calls_in_a_history_break_nothing(calls: Any) -> None:
    history = [*HELLO, {"role": "assistant", "content": "another", "tool_calls": calls}]
    async with desk(replies("hi")) as it:
        await it.ask()
        assert (await it.ask(messages=history)).status_code == 200
        assert it.server.requests[-1]["messages"] == history


async def test_the_gateways_port_serves_nothing_but_models() -> None:
    async with desk(replies("hi")) as it:
        found = [
            (await it.http.get(f"{it.gateway.address}/{path}")).status_code for path in ("health", "run", "metrics")
        ]
    assert found == [404, 404, 404]


async def test_tokens_of_old_trials_are_forgotten_in_the_end() -> None:
    async with desk(replies("hi")) as it:
        gateway = Gateway(it.gateway.new_client, remembered=1)
        tokens = []
        for _ in range(2):
            with gateway.admitted(it.session) as url:
                tokens.append(url.split("/")[-2])
    with pytest.raises(SessionClosedError):
        gateway.session(tokens[1])
    with pytest.raises(Exception, match="unknown token"):
        gateway.session(tokens[0])
