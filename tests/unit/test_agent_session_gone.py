"""Trials whose session server ends, is started anew, or has dropped their session."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, override

import httpx
import pytest

from harborrl_agent_server.contract import RunRequest
from harborrl_agent_server.endpoints import EndpointRefusedError
from harborrl_agent_server.outcomes import Cause
from harborrl_agent_server.run import Run
from harborrl_agent_server.session_watch import BODY_LIMIT, DEAD_SECONDS, Look, SessionServer, SessionWatch, instance_in
from support.agent_http import completion, eventually
from support.agent_server import MARKS, Stage, stage
from support.held_trials import Gate, held

OLD, NEW = "a" * 32, "b" * 32
LONG_COMMAND = "```sh\nsleep 4327\n```"
LOOK = 0.05


def run_of(instance: str | None = OLD, url: str = "http://10.0.0.9:30000/sessions/s/v1") -> Run:
    request = RunRequest(instance_id="task", base_url=url, session_server_instance_id=instance)
    return Run(request, "bash", id="0" * 12, registered=0.0)


class TestWhatALookSays:
    def test_another_instance_than_before_is_the_end_of_the_old_ones_sessions(self) -> None:
        old, new = run_of(OLD), run_of(NEW)
        server = SessionServer("http://s", {old, new})
        assert server.lost(Look(connected=True, instance=OLD), 0.0) == {}
        assert list(server.lost(Look(connected=True, instance=NEW), 10.0)) == [old]

    def test_an_instance_that_was_never_seen_here_is_no_evidence_against_a_run(self) -> None:
        """Several servers may share an address by the session's path: the report is then always of the same one."""
        server = SessionServer("http://s", {run_of(OLD)})
        for _ in range(100):
            assert server.lost(Look(connected=True, instance=NEW), 0.0) == {}

    def test_no_connection_for_two_minutes_is_the_end_of_all(self) -> None:
        runs = {run_of(OLD), run_of(NEW)}
        server = SessionServer("http://s", runs)
        assert server.lost(Look(connected=False), 0.0) == {}
        assert server.lost(Look(connected=False), DEAD_SECONDS - 1) == {}
        assert set(server.lost(Look(connected=False), DEAD_SECONDS)) == runs

    @pytest.mark.parametrize("sign", [Look(connected=True), Look(connected=None)])
    def test_a_connection_in_between_begins_the_two_minutes_anew_however_slow_it_is(self, sign: Look) -> None:
        server = SessionServer("http://s", {run_of()})
        server.lost(Look(connected=False), 0.0)
        server.lost(sign, DEAD_SECONDS - 1)
        assert server.lost(Look(connected=False), DEAD_SECONDS) == {}

    @pytest.mark.parametrize(
        "body",
        [b"", b"ok", b"[]", b"{}", b'{"session_server_instance_id": null}', b'{"session_server_instance_id": 7}',
         b'{"session_server_instance_id": ""}', b"[" * BODY_LIMIT, b"\xff"],
    )  # fmt: skip
    def test_what_is_no_health_report_names_nobody(self, body: bytes) -> None:
        assert instance_in(body) is None


def ticking(step_s: float) -> Iterator[float]:
    return (number * step_s for number in itertools.count())


async def test_a_server_that_takes_no_connection_ends_its_runs_with_the_cause() -> None:
    def refused(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    times = ticking(60)
    async with httpx.AsyncClient(transport=httpx.MockTransport(refused)) as client:
        watch, run = SessionWatch(client, 0, lambda: next(times)), run_of()
        watch.follow(run)
        await asyncio.wait_for(run.cancellation(), 10)
        assert run.cause is Cause.SESSION_GONE
        assert "http://10.0.0.9:30000" in run.cause_message
        watch.forget(run)
        await eventually(lambda: watch.watched == [])


async def test_a_host_that_may_not_be_asked_is_asked_once_and_not_watched() -> None:
    asked = []

    def judged(request: httpx.Request) -> httpx.Response:
        asked.append(request.url)
        raise EndpointRefusedError("no model lives there")

    async with httpx.AsyncClient(transport=httpx.MockTransport(judged)) as client:
        watch, run = SessionWatch(client, 0), run_of()
        watch.follow(run)
        await eventually(lambda: watch.watched == [])
    assert (len(asked), run.cause) == (1, None)


@pytest.mark.parametrize(
    "run",
    [run_of(None), run_of(""), run_of(url="http://h/v1"), run_of(url="http://me:pw@h/sessions/s/v1"), run_of(url="")],
)
async def test_a_request_that_leaves_nothing_to_compare_or_ask_is_not_watched(run: Run) -> None:
    async with httpx.AsyncClient() as client:
        watch = SessionWatch(client, 0)
        watch.follow(run)
        assert watch.watched == []
        watch.forget(run)


async def test_an_endless_answer_is_read_no_further_than_a_report_can_be() -> None:
    sent = 0

    class Endless(httpx.AsyncByteStream):
        @override
        async def __aiter__(self) -> AsyncIterator[bytes]:
            nonlocal sent
            while True:
                sent += 4096
                yield b"x" * 4096

    async with httpx.AsyncClient(
        transport=httpx.MockTransport(lambda _: httpx.Response(200, stream=Endless()))
    ) as client:
        look = await SessionWatch(client)._look("http://h")
    assert look == Look(connected=True, instance=None)
    assert sent <= BODY_LIMIT + 4096


@asynccontextmanager
async def in_a_long_command(tasks: Path) -> AsyncIterator[tuple[Stage, asyncio.Future[dict[str, Any]]]]:
    """A run whose agent waits for a command, hours away from its next model request."""
    async with stage(tasks, lambda *_: LONG_COMMAND, session_look_s=LOOK) as server:
        server.session.instance = OLD
        run = asyncio.ensure_future(server.run(session_server_instance_id=OLD))
        await eventually(lambda: server.session.looks > 0 and len(server.session.requests) > 0)
        yield server, run


class TestWithASandbox:
    pytestmark = MARKS

    async def test_a_restarted_session_server_ends_a_trial_whose_agent_is_in_a_long_command(self, tasks: Path) -> None:
        async with in_a_long_command(tasks) as (server, run):
            server.session.instance = NEW
            answer = await asyncio.wait_for(run, 30)
            assert (await server.health())["free"] == server.settings.max_concurrent
            (seen,) = server.runs.snapshot().finished
        assert (answer["exit_status"], answer["eval_report"], answer["infra_failure"]) == (
            "ModelEndpointFailed",
            {},
            True,
        )
        assert "another instance" in answer["message"]
        assert seen.cause == "session_gone"
        assert len(server.session.requests) == 1

    async def test_a_trial_in_the_queue_is_ended_by_it_too(self, tasks: Path) -> None:
        gate = Gate()
        async with stage(tasks, gate, max_concurrent=1, session_look_s=LOOK) as server:
            server.session.instance = OLD
            runs = [asyncio.ensure_future(server.run(session_server_instance_id=OLD)) for _ in range(2)]
            await gate.until(1)
            await eventually(lambda: server.session.looks > 0)
            server.session.instance = NEW
            answers = await asyncio.wait_for(asyncio.gather(*runs), 30)
            gate.opened.set()
        assert [answer["exit_status"] for answer in answers] == ["ModelEndpointFailed"] * 2

    async def test_a_session_that_was_deleted_ends_its_trial_at_the_next_turn_with_one_request(
        self, tasks: Path
    ) -> None:
        gone = completion("")
        gone.status_code = 404

        async with stage(tasks, lambda _, number: "```sh\n:\n```" if number == 0 else gone) as server:
            answer = await server.run()
        assert (answer["exit_status"], answer["infra_failure"]) == ("ModelEndpointFailed", True)
        assert len(server.session.requests) == 2

    async def test_the_runs_of_the_new_instance_go_on(self, tasks: Path) -> None:
        async with in_a_long_command(tasks) as (server, old):
            server.session.instance = NEW
            server.session.script = lambda *_: "TASK_DONE"
            fresh = await server.run(session_server_instance_id=NEW)
            await old
        assert fresh["exit_status"] == "Submitted"

    async def test_a_server_is_asked_by_one_watcher_however_many_trials_it_has(self, tasks: Path) -> None:
        async with held(tasks, (OLD, 6), slots=3, session_look_s=3600) as (server, gate, runs):
            server.session.instance = OLD
            gate.opened.set()
            answers = await asyncio.gather(*runs[OLD])
            assert server.session.looks == 1
            assert len(server.runs.sessions.watched) == 1
        assert {answer["exit_status"] for answer in answers} == {"Submitted"}
