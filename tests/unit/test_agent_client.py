import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from harborrl_trainer.rollout.agent_client import (
    NOT_STARTED,
    AgentClient,
    AgentServerAbsent,
    AgentServerUnreachable,
    BadReply,
    BadRequest,
    TrialCeilingExceeded,
    keepalive_options,
    parse_reply,
)

CONTRACT = Path(__file__).resolve().parents[1] / "contract"
Handler = Callable[[httpx.Request], httpx.Response]


def contract(name: str) -> Any:
    return json.loads((CONTRACT / name).read_text())


def client(handler: Any, ceiling_s: float = 900) -> AgentClient:
    return AgentClient("http://agents/", ceiling_s=ceiling_s, admin_secret="s", transport=httpx.MockTransport(handler))


def patient_client(handler: Any, now: list[float]) -> AgentClient:
    """One whose pauses are the only time that passes."""

    async def pause(seconds: float) -> None:
        now[0] += seconds

    transport = httpx.MockTransport(handler)
    return AgentClient("http://agents/", ceiling_s=900, transport=transport, clock=lambda: now[0], pause=pause)


async def test_a_trial_is_sent_as_the_contract_says_and_its_reply_is_read() -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json=contract("run_response.json"))

    request = contract("run_request.json")
    reply = await client(answer).run(request)
    assert (str(seen[0].url), json.loads(seen[0].content)) == ("http://agents/run", request)
    assert (reply.exit_status, reply.reward, reply.eval_report) == ("Submitted", 0.5, {"reward": 0.5})
    assert reply.phase_seconds["start"] == 0.9


async def test_a_re_run_tells_the_server_the_time_that_is_left() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        assert json.loads(request.content)["deadline_s"] == 12.5
        return httpx.Response(200, json=contract("run_response.json"))

    await client(answer).run({}, ceiling_s=12.5)


async def test_no_answer_within_the_ceiling_is_its_own_error() -> None:
    async def never(_: httpx.Request) -> httpx.Response:
        await asyncio.Event().wait()
        raise AssertionError

    with pytest.raises(TrialCeilingExceeded):
        await client(never).run({}, ceiling_s=0.01)


async def test_a_broken_connection_is_reported_once_and_never_retried() -> None:
    sent = []

    def breaks(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        raise httpx.ReadError("connection reset")

    with pytest.raises(AgentServerUnreachable):
        await client(breaks).run({})
    assert len(sent) == 1


@pytest.mark.parametrize("absent", [httpx.ConnectError("refused"), httpx.Response(503, headers=[NOT_STARTED])])
async def test_a_server_that_is_being_restarted_is_waited_for(absent: Any) -> None:
    now = [0.0]
    deadlines: list[float] = []

    def answer(request: httpx.Request) -> httpx.Response:
        deadlines.append(json.loads(request.content)["deadline_s"])
        if now[0] >= 30:
            return httpx.Response(200, json=contract("run_response.json"))
        if isinstance(absent, Exception):
            raise absent
        return httpx.Response(absent.status_code, headers=absent.headers)

    assert (await patient_client(answer, now).run({}, ceiling_s=900)).exit_status == "Submitted"
    assert (deadlines[0], deadlines[-1]) == (900, 870)


async def test_a_proxys_503_is_not_taken_for_a_trial_that_has_not_started() -> None:
    sent = []

    def broken_upstream(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(503, text="upstream connect error or disconnect/reset before headers")

    with pytest.raises(AgentServerUnreachable, match="HTTP 503, which is not the agent server's own") as raised:
        await patient_client(broken_upstream, [0.0]).run({})
    assert (len(sent), raised.value.retryable) == (1, True)


@pytest.mark.parametrize(
    ("in_flight", "reached", "waited"), [(7, True, 0.0), (8, True, 20.0), (None, False, 20.0), ("freed", True, 6.0)]
)
async def test_room_is_a_server_that_answers_with_a_slot_to_spare(in_flight: Any, reached: bool, waited: float) -> None:
    now = [0.0]

    def health(_: httpx.Request) -> httpx.Response:
        if in_flight is None:
            raise httpx.ConnectError("refused")
        held = (8 if now[0] < 6 else 7) if in_flight == "freed" else in_flight
        return httpx.Response(200, json={"status": "ok", "capacity": 8, "in_flight": held, "queued": 0})

    assert (await patient_client(health, now).await_room(20), now[0]) == (reached, waited)


async def test_a_server_that_tells_no_capacity_is_not_waited_for() -> None:
    now = [0.0]
    assert await patient_client(lambda _: httpx.Response(200, json={"status": "ok"}), now).await_room(20)
    assert now == [0.0]


async def test_a_server_that_stays_away_is_given_up_after_a_minute() -> None:
    def refuses(_: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    now = [0.0]
    with pytest.raises(AgentServerAbsent):
        await patient_client(refuses, now).run({})
    assert now == [60.0]


@pytest.mark.parametrize(
    "response", [httpx.Response(500), httpx.Response(200, text="<html>"), httpx.Response(200, json=[])]
)
async def test_an_answer_that_is_no_outcome_is_a_bad_reply(response: httpx.Response) -> None:
    with pytest.raises(BadReply):
        await client(lambda _: response).run({})


async def test_health_is_read_from_the_contract() -> None:
    health = await client(lambda _: httpx.Response(200, json=contract("health.json"))).health()
    assert (health.ok, health.capacity, health.in_flight, health.queued) == (True, 8, 3, 0)


async def test_a_health_report_without_capacity_is_refused() -> None:
    with pytest.raises(BadReply):
        await client(lambda _: httpx.Response(200, json={"status": "ok"})).health()


async def test_flush_names_the_session_servers_carries_the_secret_and_is_tried_three_times() -> None:
    seen: list[httpx.Request] = []

    def third_time(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json={"cancelled": 2}) if len(seen) == 3 else httpx.Response(500)

    assert await client(third_time).flush(["abc"]) == 2
    assert json.loads(seen[-1].content) == {"session_server_instance_ids": ["abc"]}
    assert seen[-1].headers["Authorization"] == "Bearer s"


async def test_a_server_that_knows_only_the_singular_field_is_flushed_once_for_each_session_server() -> None:
    seen: list[Any] = []

    def old(request: httpx.Request) -> httpx.Response:
        seen.append(json.loads(request.content))
        return httpx.Response(200, json={}) if "session_server_instance_id" in seen[-1] else httpx.Response(422)

    assert await client(old).flush(["a", "b"]) == 0
    assert seen[1:] == [{"session_server_instance_id": "a"}, {"session_server_instance_id": "b"}]


async def test_a_row_that_no_json_can_hold_is_the_requests_fault_and_not_tried_again() -> None:
    def never(_: httpx.Request) -> httpx.Response:
        raise AssertionError

    with pytest.raises(BadRequest) as raised:
        await client(never).run({"due": float("nan")})
    assert not raised.value.retryable


def test_keepalive_probes_are_set_by_the_names_that_a_system_has() -> None:
    linux = SimpleNamespace(SOL_SOCKET=1, SO_KEEPALIVE=9, IPPROTO_TCP=6, TCP_KEEPIDLE=4, TCP_KEEPINTVL=5, TCP_KEEPCNT=6)
    macos = SimpleNamespace(SOL_SOCKET=0xFFFF, SO_KEEPALIVE=8, IPPROTO_TCP=6, TCP_KEEPALIVE=16)
    assert keepalive_options(linux) == [(1, 9, 1), (6, 4, 60), (6, 5, 30), (6, 6, 5)]
    assert keepalive_options(macos) == [(0xFFFF, 8, 1), (6, 16, 60)]


async def test_a_flush_that_fails_three_times_is_an_error() -> None:
    with pytest.raises(AgentServerUnreachable):
        await client(lambda _: httpx.Response(500)).flush(["abc"])


def test_the_servers_message_is_read_and_may_be_absent() -> None:
    assert parse_reply(b'{"exit_status": "TaskNotFound", "message": "no task \'x\'"}').message == "no task 'x'"
    assert parse_reply(b'{"exit_status": "Submitted", "message": null}').message == ""
    assert parse_reply(b'{"exit_status": "Submitted"}').message == ""


def test_a_nan_on_the_wire_is_kept_for_the_verdict_to_refuse() -> None:
    reply = parse_reply(b'{"exit_status": "Submitted", "reward": NaN, "eval_report": {"reward": NaN}}')
    assert reply.reward != reply.reward


def test_times_that_are_no_finite_numbers_are_left_out() -> None:
    body = b'{"exit_status": "Submitted", "phase_seconds": {"run": 1.5, "start": NaN, "verify": 1%s}}' % (b"0" * 400)
    assert parse_reply(body).phase_seconds == {"run": 1.5}
