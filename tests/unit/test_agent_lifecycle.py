"""Who ends a run, and what is left of it: slots, flush, clients that leave, hanging teardown, SIGTERM."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.agent_http import eventually, replies
from support.agent_server import BUDGETS, MARKS, Stage, stage
from support.held_trials import Gate, held
from support.server_process import asked, process

pytestmark = MARKS

ROOT = Path(__file__).resolve().parents[2]


async def flush(server: Stage, body: dict[str, Any], token: str = "") -> httpx.Response:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return await server.client.post(f"{server.url}/flush", json=body, headers=headers)


async def test_no_more_trials_run_than_there_are_slots(tasks: Path) -> None:
    async with held(tasks, ("a", 5), slots=2) as (server, gate, runs):
        health = await server.health()
        assert (health["in_flight"], health["queued"], health["free"], health["capacity"]) == (2, 3, 0, 2)
        gate.opened.set()
        answers = await asyncio.gather(*runs["a"])
        assert gate.peak <= 2
    assert {answer["exit_status"] for answer in answers} == {"Submitted"}
    assert sum(answer["phase_seconds"]["queue"] > 0.01 for answer in answers) >= 3


async def test_flush_ends_running_and_queued_runs_of_that_session_only(tasks: Path) -> None:
    async with held(tasks, ("a", 5), ("b", 1), slots=4) as (server, gate, runs):
        told = (await flush(server, {"session_server_instance_id": "a"})).json()
        assert (told["cancelled"], told["ids"], told["unreached"]) == (5, ["a"], 0)
        answers = await asyncio.gather(*runs["a"])
        assert {(answer["exit_status"], answer["infra_failure"]) for answer in answers} == {("Aborted", True)}
        await gate.until(1)
        gate.opened.set()
        assert (await runs["b"][0])["exit_status"] == "Submitted"


async def test_flush_takes_lists_and_is_harmless_when_repeated_or_unknown(tasks: Path) -> None:
    async with held(tasks, ("a", 1), ("b", 1), slots=2) as (server, _, __):
        first = (await flush(server, {"session_server_instance_ids": ["a", "b", "never"]})).json()
        again = (await flush(server, {"session_server_instance_ids": ["a", "b", "never"]})).json()
    assert (first["cancelled"], again["cancelled"]) == (2, 0)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"session_server_instance": "a"},
        {"session_server_instance_id": None},
        {"session_server_instance_id": ""},
        {"session_server_instance_ids": []},
        {"session_server_instance_ids": [""]},
    ],
)
async def test_a_flush_that_names_no_session_is_a_mistake_that_is_told(tasks: Path, body: dict[str, Any]) -> None:
    async with held(tasks, ("a", 1), slots=1) as (server, _, __):
        told = await flush(server, body)
        assert told.status_code == 422
        assert "name a session: session_server_instance_id" in told.text
        assert len(server.runs.live) == 1


async def test_a_flushed_session_may_run_again(tasks: Path) -> None:
    async with stage(tasks, replies("")) as server:
        await flush(server, {"session_server_instance_id": "instance-a"})
        assert (await server.run())["exit_status"] == "Submitted"


@pytest.mark.parametrize("token", ["", "wrong"])
async def test_flush_demands_the_secret_when_there_is_one(tasks: Path, token: str) -> None:
    async with stage(tasks, replies(""), admin_secret="right") as server:
        assert (await flush(server, {"session_server_instance_id": "a"}, token)).status_code == 401
        assert (await flush(server, {"session_server_instance_id": "a"}, "right")).status_code == 200


async def test_a_client_that_leaves_frees_its_slot(tasks: Path) -> None:
    async with held(tasks, ("a", 1), ("b", 1), slots=1) as (server, gate, runs):
        runs["a"][0].cancel()
        await asyncio.gather(*runs["a"], return_exceptions=True)
        await eventually(lambda: server.runs.outcomes["Aborted"] == 1 and gate.waiting == 1)
        gate.opened.set()
        assert (await runs["b"][0])["exit_status"] == "Submitted"


async def test_a_trial_that_could_not_end_in_time_is_not_started(tasks: Path) -> None:
    async with stage(tasks, replies("")) as server:
        answer = await server.run(deadline_s=BUDGETS.total() - 1)
        assert server.session.requests == []
    assert (answer["exit_status"], answer["infra_failure"]) == ("QueueTimeout", True)
    assert "whether or not a slot is free: raise the client's ceiling" in answer["message"]


async def test_a_queued_trial_gives_up_the_moment_it_could_no_longer_end_in_time(tasks: Path) -> None:
    async with held(tasks, ("a", 1), slots=1) as (server, _, __):
        answer = await server.run(deadline_s=BUDGETS.total() + 0.2, session_server_instance_id="b")
        assert (await server.health())["queued"] == 0
    assert answer["exit_status"] == "QueueTimeout"
    assert "--max-concurrent" in answer["message"]


async def test_nothing_is_left_of_many_trials(tasks: Path) -> None:
    """File descriptors, loggers and registered runs stay where they were after the first trials."""
    async with stage(tasks, replies("")) as server:
        await asyncio.gather(*(server.run() for _ in range(8)))
        await server.health()
        before = (len(os.listdir("/proc/self/fd")), len(logging.Logger.manager.loggerDict))  # noqa: PTH208 - a count of names
        for _ in range(3):
            await asyncio.gather(*(server.run() for _ in range(8)))
        await server.health()
        after = (len(os.listdir("/proc/self/fd")), len(logging.Logger.manager.loggerDict))  # noqa: PTH208 - a count of names
        assert server.runs.live == set()
    assert after[0] <= before[0] + 2
    assert after[1] == before[1]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 422),
        (b"[]", 422),
        (b'{"agent_name": "bash"}', 422),
        (b'{"instance_id": 7}', 422),
        (b" " * (32 * 1024 * 1024 + 1), 413),
    ],
)
async def test_a_body_that_is_no_request_is_refused_by_status(tasks: Path, body: bytes, status: int) -> None:
    async with stage(tasks, replies("")) as server:
        answer = await server.client.post(f"{server.url}/run", content=body)
        assert answer.status_code == status
        assert (await server.health())["status"] == "ok"


async def test_a_stopping_server_refuses_new_runs_and_answers_the_running_ones(tasks: Path) -> None:
    async with held(tasks, ("a", 2), slots=1) as (server, _, runs):
        await server.runs.stop(10)
        refused = await server.client.post(f"{server.url}/run", json=server.body())
        answers = await asyncio.gather(*runs["a"])
        assert (await server.health())["status"] == "draining"
    assert (refused.status_code, "retry-after" in refused.headers) == (503, True)
    assert refused.headers["x-harborrl-trial"] == "not-started"
    assert [answer["exit_status"] for answer in answers] == ["Aborted", "Aborted"]


async def test_sigterm_ends_the_process_with_every_answer_given_and_no_sandbox_left(
    tasks: Path, tmp_path: Path
) -> None:
    gate = Gate()
    async with process(tasks, tmp_path, ["-m", "harborrl_agent_server"]) as (server, url), asked(url, gate) as run:
        server.send_signal(signal.SIGTERM)
        answer = (await run).json()
        async with asyncio.timeout(20):
            code = await server.wait()
        gate.opened.set()
    assert (answer["exit_status"], code) == ("Aborted", 0)


def test_a_whole_trial_never_loads_the_model_library(tasks: Path) -> None:
    """It would cost six seconds and 170 MB in every server."""
    code = (
        "import asyncio, sys; from pathlib import Path\n"
        "from support.agent_server import stage; from support.agent_http import replies\n"
        "async def main():\n"
        f"    async with stage(Path({str(tasks)!r}), replies('TASK_DONE')) as server:\n"
        "        return await server.run()\n"
        "answer = asyncio.run(main()); print(answer['exit_status'], 'litellm' in sys.modules)"
    )
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'agent_server'}:{ROOT / 'tests'}"}
    command = [sys.executable, "-c", code]
    shown = subprocess.run(command, env=env, check=True, capture_output=True, text=True)  # noqa: S603 - our own list
    assert shown.stdout.split() == ["Submitted", "False"]
