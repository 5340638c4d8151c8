"""Several server processes behind one port: to a client they are one server. Real processes, real sandboxes."""

import asyncio
import os
import re
import signal
from pathlib import Path

import httpx
import pytest

from support.agent_http import eventually
from support.agent_server import MARKS
from support.pids import is_running
from support.server_process import LOCAL, started
from support.worker_processes import children, crew, worker_pid

pytestmark = MARKS


async def test_workers_share_one_queue_and_one_budget_of_slots(tasks: Path, tmp_path: Path) -> None:
    async with crew(tasks, tmp_path, slots=2) as server:
        runs = [server.ask(server.session_on(number % 2, f"i{number}"), f"i{number}") for number in range(5)]
        await server.gate.until(2)
        while (await server.health())["queued"] < 3:
            pass
        busy = await server.health()
        assert (busy["capacity"], busy["in_flight"], busy["free"], busy["status"]) == (2, 2, 0, "ok")
        server.gate.opened.set()
        answers = [answer.json()["exit_status"] for answer in await asyncio.gather(*runs)]
        shown = (await server.client.get(f"{server.url}/metrics")).text
        assert (await server.health())["outcomes"] == {"Submitted": 5}
    assert answers == ["Submitted"] * 5
    assert server.gate.peak == 2
    assert 'harborrl_agent_trials_total{outcome="Submitted"} 5.0' in shown
    assert re.findall(r"^harborrl_agent_capacity (\S+)$", shown, re.MULTILINE) == ["2.0"]


async def test_one_busy_worker_may_have_every_slot_of_the_pod(tasks: Path, tmp_path: Path) -> None:
    async with crew(tasks, tmp_path, slots=3) as server:
        runs = [server.ask(server.session_on(0, f"i{number}"), f"i{number}") for number in range(3)]
        await server.gate.until(3)
        server.gate.opened.set()
        await asyncio.gather(*runs)


async def test_a_session_has_one_trial_however_often_it_is_asked_for(tasks: Path, tmp_path: Path) -> None:
    async with crew(tasks, tmp_path, workers=3) as server:
        runs = [server.ask("same") for _ in range(4)]
        await server.gate.until(1)
        server.gate.opened.set()
        answers = [answer.json() for answer in await asyncio.gather(*runs)]
        later = (await server.ask("same")).json()
        assert (await server.health())["outcomes"] == {"Submitted": 1}
    assert {answer["trial_name"] for answer in [*answers, later]} == {later["trial_name"]}


async def test_a_flush_reaches_the_trials_of_every_worker_and_counts_each_once(tasks: Path, tmp_path: Path) -> None:
    async with crew(tasks, tmp_path) as server:
        hit = [server.ask(server.session_on(worker, "a"), "a") for worker in (0, 1)]
        spared = server.ask(server.session_on(1, "b"), "b")
        await server.gate.until(3)
        first, second = await server.flush("a"), await server.flush("a", "nobody")
        assert (first["cancelled"], first["pending"], first["unreached"]) == (2, 0, 0)
        assert (second["cancelled"], second["ids"]) == (0, ["a", "nobody"])
        assert [answer.json()["exit_status"] for answer in await asyncio.gather(*hit)] == ["Aborted"] * 2
        server.gate.opened.set()
        assert (await spared).json()["exit_status"] == "Submitted"


async def test_a_worker_that_dies_breaks_its_own_clients_connections_and_is_started_again(
    tasks: Path, tmp_path: Path
) -> None:
    async with crew(tasks, tmp_path, slots=2) as server:
        lost, spared = server.session_on(0), server.session_on(1)
        of_dead, of_living = server.ask(lost), server.ask(spared)
        await server.gate.until(2)
        dead = worker_pid(server.server.pid, 0)
        os.kill(dead, signal.SIGKILL)
        with pytest.raises(httpx.RemoteProtocolError):
            await of_dead
        assert (await server.client.get(f"{server.url}/ready")).status_code == 200  # for the sessions of the other
        while (await server.health())["status"] != "ok":
            pass
        assert worker_pid(server.server.pid, 0) != dead
        assert (await server.client.get(f"{server.url}/ready")).status_code == 200
        assert (await server.health())["in_flight"] == 1  # what the dead one held has come back
        again = (await server.ask(lost)).json()
        assert (again["exit_status"], again["infra_failure"]) == ("ServerError", True)
        assert (await server.health())["outcomes"] == {"ServerError": 1}
        os.kill(worker_pid(server.server.pid, 0), signal.SIGKILL)
        assert (await server.health())["outcomes"] == {"ServerError": 1}  # what a dead one has counted stays
        server.gate.opened.set()
        assert (await of_living).json()["exit_status"] == "Submitted"


async def test_a_worker_that_hangs_holds_up_nobody_who_asks_for_the_server(tasks: Path, tmp_path: Path) -> None:
    async with crew(tasks, tmp_path) as server:
        runs = [server.ask(server.session_on(worker)) for worker in (0, 1)]
        await server.gate.until(2)
        before = (await server.client.get(f"{server.url}/metrics")).text
        hanging = worker_pid(server.server.pid, 0)
        os.kill(hanging, signal.SIGSTOP)
        try:
            assert (await server.client.get(f"{server.url}/ready")).status_code == 200
            health = await server.health()
            assert (health["status"], health["in_flight"]) == ("degraded", 2)
            assert "harborrl_agent_in_flight 2.0" in before
            assert "harborrl_agent_in_flight 2.0" in (await server.client.get(f"{server.url}/metrics")).text
            flushed = await server.flush("instance-a")
            assert (flushed["cancelled"], flushed["unreached"]) == (1, 1)
            assert (await runs[1]).json()["exit_status"] == "Aborted"
            assert worker_pid(server.server.pid, 0) == hanging  # all of it before the dispatcher gave it up
        finally:
            os.kill(hanging, signal.SIGCONT)
        assert (await runs[0]).json()["exit_status"] == "Aborted"  # the flush has waited for it


async def test_a_client_that_leaves_frees_its_slot(tasks: Path, tmp_path: Path) -> None:
    async with crew(tasks, tmp_path) as server:
        run = server.ask("s")
        await server.gate.until(1)
        run.cancel()
        while (await server.health())["in_flight"]:
            pass
        assert (await server.health())["outcomes"] == {"Aborted": 1}


async def test_told_to_stop_it_answers_every_trial_and_leaves_no_process(tasks: Path, tmp_path: Path) -> None:
    async with crew(tasks, tmp_path) as server:
        runs = [server.ask(server.session_on(worker)) for worker in (0, 1)]
        await server.gate.until(2)
        workers = children(server.server.pid)
        server.server.terminate()
        answers = [(await run).json()["exit_status"] for run in runs]
        assert await server.server.wait() == 0
    assert answers == ["Aborted"] * 2
    assert not any(is_running(pid) for pid in workers)


async def test_workers_whose_dispatcher_is_killed_leave_too(tasks: Path, tmp_path: Path) -> None:
    async with crew(tasks, tmp_path) as server:
        workers = children(server.server.pid)
        server.server.kill()
        await eventually(lambda: not any(is_running(pid) for pid in workers), limit_s=60)
    assert len(workers) == 2


async def test_what_no_worker_would_take_is_refused_as_by_one_server(tasks: Path, tmp_path: Path) -> None:
    async with crew(tasks, tmp_path) as server:
        malformed = await server.client.post(f"{server.url}/run", content="{")
        unknown = await server.client.post(f"{server.url}/run", json={"instance_id": "no-such-task"})
    assert malformed.status_code == 422
    assert unknown.json()["exit_status"] == "TaskNotFound"


async def test_a_worker_that_cannot_start_ends_the_server_with_one_line(tasks: Path, tmp_path: Path) -> None:
    program = ["-m", "harborrl_agent_server", "--workers", "2", "--agent-kwargs", '{"maxTurns": 0}', *LOCAL]
    server = await started(tasks, tmp_path, program, stderr=asyncio.subprocess.PIPE)
    _, said = await server.communicate()
    assert server.returncode == 64
    assert b"--agent-kwargs" in said
    assert said.splitlines()[-1].startswith(b"harborrl_agent_server: a worker ended with 64 before it was ready")
