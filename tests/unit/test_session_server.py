"""The session server over HTTP, with answers that the test gives in the engine's place."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from harborrl_trainer.native.chat import ChatRenderer
from harborrl_trainer.native.sampling import SamplingParams
from harborrl_trainer.native.session import Generation
from harborrl_trainer.native.session_server import SessionStore, build_app
from support import tiny_model
from support.tiny_model import END_ID

ASK = [{"role": "user", "content": "hi"}]


class ScriptedEngine:
    def __init__(self) -> None:
        self.asked: list[tuple[str, list[int], SamplingParams]] = []
        self.entered = asyncio.Event()
        self.hold: asyncio.Event | None = None

    async def generate(self, request_id: str, prompt: list[int], params: SamplingParams) -> Generation:
        self.asked.append((request_id, prompt, params))
        self.entered.set()
        if self.hold:
            await self.hold.wait()
        sampled = (70, 71, 72, END_ID)[: params.max_tokens]
        finish = "stop" if sampled[-1] == END_ID else "length"
        return Generation(sampled, tuple(-1.0 for _ in sampled), finish, weight_version=4)  # type: ignore[arg-type]  # mypy widens the literals


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine()


@pytest.fixture
def store(engine: ScriptedEngine) -> SessionStore:
    renderer = ChatRenderer(tiny_model.tokenizer())
    return SessionStore(renderer=renderer, generate=engine.generate, max_seq_len=400, max_response=50)


@pytest.fixture
async def http(store: SessionStore) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=build_app(store))
    async with httpx.AsyncClient(transport=transport, base_url="http://sessions") as client:
        yield client


async def test_a_chat_call_is_answered_in_openai_shape(http: httpx.AsyncClient) -> None:
    reply = await _chat(http, await _open(http), ASK)
    body = reply.json()
    assert reply.status_code == 200
    assert body["choices"][0]["message"] == {"role": "assistant", "content": "efg"}
    assert body["choices"][0]["finish_reason"] == "stop"
    assert body["usage"]["completion_tokens"] == 4
    assert body["usage"]["total_tokens"] == body["usage"]["prompt_tokens"] + 4


async def test_sampling_parameters_reach_the_engine(http: httpx.AsyncClient, engine: ScriptedEngine) -> None:
    await _chat(http, await _open(http), ASK, temperature=0.5, top_p=0.9, max_tokens=3, seed=11)
    assert engine.asked[0][2] == SamplingParams(temperature=0.5, top_p=0.9, max_tokens=3, seed=11)


async def test_an_answer_never_exceeds_the_room_that_the_trajectory_has(
    http: httpx.AsyncClient, engine: ScriptedEngine
) -> None:
    await _chat(http, await _open(http), [{"role": "user", "content": "x" * 250}], max_tokens=500)
    _, prompt, params = engine.asked[0]
    assert params.max_tokens == 400 - len(prompt)


async def test_a_second_turn_sends_the_first_ones_ids_verbatim(http: httpx.AsyncClient, engine: ScriptedEngine) -> None:
    session = await _open(http)
    first = await _chat(http, session, ASK)
    history = [*ASK, first.json()["choices"][0]["message"], {"role": "user", "content": "more"}]
    await _chat(http, session, history)
    prompts = [prompt for _, prompt, _ in engine.asked]
    assert prompts[1][: len(prompts[0]) + 4] == [*prompts[0], 70, 71, 72, END_ID]


async def test_a_repeated_request_gets_the_recorded_answer_and_samples_nothing(
    http: httpx.AsyncClient, engine: ScriptedEngine
) -> None:
    session = await _open(http)
    replies = [(await _chat(http, session, ASK)).json() for _ in range(2)]
    assert replies[0]["id"] == replies[1]["id"]
    assert len(engine.asked) == 1


async def test_two_calls_of_one_session_never_interleave(http: httpx.AsyncClient, engine: ScriptedEngine) -> None:
    engine.hold = asyncio.Event()
    session = await _open(http)
    calls = [asyncio.create_task(_chat(http, session, ASK)) for _ in range(2)]
    await engine.entered.wait()
    engine.hold.set()
    assert [reply.status_code for reply in await asyncio.gather(*calls)] == [200, 200]
    assert len(engine.asked) == 1


async def test_a_history_replayed_in_a_clients_own_dress_is_the_same_history(http: httpx.AsyncClient) -> None:
    session = await _open(http)
    await _chat(http, session, ASK)
    dressed = {"role": "assistant", "content": [{"type": "text", "text": "efg"}], "tool_calls": None, "refusal": None}
    assert (await _chat(http, session, [*ASK, dressed, {"role": "user", "content": "more"}])).status_code == 200


async def test_an_altered_history_gets_400(http: httpx.AsyncClient) -> None:
    session = await _open(http)
    await _chat(http, session, ASK)
    reply = await _chat(http, session, [*ASK, {"role": "assistant", "content": "other"}, ASK[0]])
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "history_not_append_only")


async def test_a_context_that_is_too_long_gets_400_with_its_code(http: httpx.AsyncClient) -> None:
    reply = await _chat(http, await _open(http), [{"role": "user", "content": "x" * 500}])
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "context_length_exceeded")


async def test_going_on_after_a_turn_cut_by_length_gets_409(http: httpx.AsyncClient) -> None:
    session = await _open(http)
    first = await _chat(http, session, ASK, max_tokens=2)
    assert first.json()["choices"][0]["finish_reason"] == "length"
    reply = await _chat(http, session, [*ASK, first.json()["choices"][0]["message"], ASK[0]])
    assert reply.status_code == 409


@pytest.mark.parametrize(
    "body",
    [
        b"not json",
        b"{}",
        b'{"messages": [{"role": "user", "content": null}]}',
        b'{"messages": [{"role": "user", "content": "x"}], "tools": [{}]}',
        b'{"messages": [{"role": "user", "content": "x"}], "temperature": 0}',
        b'{"messages": [{"role": "user", "content": "x"}], "n": 2}',
    ],
)
async def test_a_request_that_cannot_be_honoured_gets_400(http: httpx.AsyncClient, body: bytes) -> None:
    session = await _open(http)
    reply = await http.post(f"/sessions/{session}/v1/chat/completions", content=body)
    assert reply.status_code == 400


async def test_a_closed_session_is_unknown(http: httpx.AsyncClient) -> None:
    session = await _open(http)
    assert (await http.delete(f"/sessions/{session}")).status_code == 200
    for reply in (
        await _chat(http, session, ASK),
        await http.get(f"/sessions/{session}"),
        await http.delete(f"/sessions/{session}"),
    ):
        assert reply.status_code == 404


async def test_a_call_that_waits_while_its_session_is_closed_samples_nothing(
    http: httpx.AsyncClient, engine: ScriptedEngine
) -> None:
    engine.hold = asyncio.Event()
    session = await _open(http)
    first = asyncio.create_task(_chat(http, session, ASK))
    await engine.entered.wait()
    second = asyncio.create_task(_chat(http, session, ASK))
    await http.get("/health")  # the second has reached the server
    await http.delete(f"/sessions/{session}")
    engine.hold.set()
    assert [(await first).status_code, (await second).status_code] == [200, 404]
    assert len(engine.asked) == 1


async def test_a_session_shows_its_tokens(http: httpx.AsyncClient, engine: ScriptedEngine) -> None:
    session = await _open(http)
    await _chat(http, session, ASK)
    shown = (await http.get(f"/sessions/{session}")).json()
    assert shown["metadata"]["accumulated_token_ids"] == [*engine.asked[0][1], 70, 71, 72, END_ID]


async def test_health_names_the_instance(http: httpx.AsyncClient, store: SessionStore) -> None:
    reply = (await http.get("/health")).json()
    assert reply == {"status": "ok", "session_server_instance_id": store.instance_id}


async def _open(http: httpx.AsyncClient) -> str:
    return str((await http.post("/sessions")).json()["session_id"])


async def _chat(http: httpx.AsyncClient, session: str, messages: list[Any], **params: Any) -> httpx.Response:
    return await http.post(f"/sessions/{session}/v1/chat/completions", json={"messages": messages, **params})
