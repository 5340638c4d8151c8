"""An agent's phase around its model session: who ends it, and what of it counts."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from harborrl_agent_server.errors import ModelEndpointError, SandboxLostError
from harborrl_agent_server.gateway_episode import episode
from harborrl_agent_server.gateway_session import EpisodeOver, ModelSession, SessionClosedError, Upstream

Case = tuple[Any, dict[str, Any]]

ASKED = {"messages": [{"role": "user", "content": "hi"}]}


def answering(status: int = 200, finish_reason: str = "stop", total: int = 10) -> Any:
    message = {"role": "assistant", "content": "ls"}
    body = {"choices": [{"message": message, "finish_reason": finish_reason}], "usage": {"total_tokens": total}}
    return lambda _: httpx.Response(status, json=body)


@pytest.fixture
async def session(request: pytest.FixtureRequest) -> AsyncIterator[ModelSession]:
    answer, options = getattr(request, "param", (answering(), {}))
    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        yield ModelSession(Upstream("http://session/v1", "m", **options), client, {}, [])


CUT: Case = (answering(finish_reason="length"), {})
FULL: Case = (answering(total=100), {"max_seq_len": 100})
GONE: Case = (answering(status=404), {})


async def test_the_model_answers_during_the_phase_alone(session: ModelSession) -> None:
    async def agent() -> None:
        await session.complete(ASKED)

    await episode(session, agent())
    with pytest.raises(SessionClosedError):
        await session.complete(ASKED)


async def test_what_the_agent_raises_is_passed_on(session: ModelSession) -> None:
    async def agent() -> None:
        raise KeyError("a bug of the agent")

    with pytest.raises(KeyError):
        await episode(session, agent())


@pytest.mark.parametrize("session", [CUT], indirect=True)
async def test_an_agent_that_goes_on_after_a_cut_is_ended_and_its_trial_is_graded(session: ModelSession) -> None:
    ended = False

    async def agent() -> None:
        nonlocal ended
        try:
            while True:
                try:
                    await session.complete(ASKED)
                except EpisodeOver:
                    await asyncio.sleep(0)
        finally:
            ended = True

    await episode(session, agent(), leave_s=0.01)
    assert ended
    assert session.turns == 1


@pytest.mark.parametrize("session", [FULL], indirect=True)
async def test_the_turn_that_fills_the_sequence_may_still_be_acted_on(session: ModelSession) -> None:
    acted = False

    async def agent() -> None:
        nonlocal acted
        await session.complete(ASKED)
        await asyncio.sleep(0)
        acted = True

    await episode(session, agent(), leave_s=0)
    assert acted


@pytest.mark.parametrize("session", [CUT], indirect=True)
async def test_the_error_with_which_an_agent_meets_the_end_is_no_error_of_the_trial(session: ModelSession) -> None:
    async def agent() -> None:
        try:
            await session.complete(ASKED)
        except EpisodeOver as error:
            raise RuntimeError("exit code 1") from error

    await episode(session, agent())


@pytest.mark.parametrize("session", [GONE], indirect=True)
async def test_a_broken_endpoint_ends_the_trial_whatever_the_agent_makes_of_it(session: ModelSession) -> None:
    async def agent() -> None:
        try:
            await session.complete(ASKED)
        except ModelEndpointError:
            await asyncio.Event().wait()

    with pytest.raises(ModelEndpointError, match="the session is gone"):
        await episode(session, agent())


@pytest.mark.parametrize("session", [CUT, GONE], indirect=True)
async def test_a_lost_sandbox_comes_before_everything(session: ModelSession) -> None:
    async def agent() -> None:
        try:
            await session.complete(ASKED)
        except (EpisodeOver, ModelEndpointError) as error:
            raise SandboxLostError("node gone") from error

    with pytest.raises(SandboxLostError):
        await episode(session, agent())


async def test_an_agent_that_fails_before_the_policy_had_a_turn_is_no_zero_of_the_policys(
    session: ModelSession,
) -> None:
    async def agent() -> None:
        raise RuntimeError("exit code 1")

    session.inside = True
    with pytest.raises(ModelEndpointError, match="without one turn"):
        await episode(session, agent())


async def test_a_cancelled_trial_closes_the_model_before_the_agent_has_left(session: ModelSession) -> None:
    begun, was_open = asyncio.Event(), True

    async def agent() -> None:
        nonlocal was_open
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            was_open = session.is_open

    phase = asyncio.ensure_future(episode(session, agent()))
    await begun.wait()
    phase.cancel()
    with pytest.raises(asyncio.CancelledError):
        await phase
    assert not was_open


async def test_the_history_goes_back_as_it_was_sampled_after_the_examples() -> None:
    sent: list[Any] = []
    reply = {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [call("1", "ls")]}

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(200, json={"choices": [{"message": reply, "finish_reason": "tool_calls"}]})

    example = {"role": "assistant", "content": "an example"}
    rewritten = {"role": "assistant", "content": "", "tool_calls": [{**call("1", "ls"), "index": 0}], "extra": {}}
    other = {"role": "assistant", "content": "", "tool_calls": [call("2", "rm")]}
    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        session = ModelSession(Upstream("http://session/v1", "m"), client, {}, [])
        session.open()
        await session.complete({"messages": [example]})
        await session.complete({"messages": [example, rewritten]})
        await session.complete({"messages": [example, rewritten, other]})
    assert [message_list(request) for request in sent] == [[example], [example, reply], [example, reply, other]]


def message_list(request: httpx.Request) -> Any:
    return json.loads(request.content)["messages"]


def call(name: str, command: str) -> dict[str, Any]:
    return {"id": name, "type": "function", "function": {"name": "bash", "arguments": command}}


@pytest.mark.parametrize("inside", [True, False])
async def test_a_policy_cannot_have_its_trial_thrown_away_by_asking_nonsense_from_its_sandbox(inside: bool) -> None:
    refusal = httpx.MockTransport(lambda _: httpx.Response(400, json={"error": {"code": "not_append_only"}}))
    async with httpx.AsyncClient(transport=refusal) as client:
        progress: dict[str, Any] = {}
        session = ModelSession(Upstream("http://session/v1", "m"), client, progress, [], inside=inside)
        session.open()
        for _ in range(10):
            with pytest.raises(ModelEndpointError):
                await session.complete(ASKED)
    assert (session.failure is None) is inside
    assert progress.get("end") == ("AgentError" if inside else None)
