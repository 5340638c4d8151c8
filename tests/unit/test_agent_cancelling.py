"""Runs that are ended in each of their phases, and what the queue does to their clocks."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harborrl_agent_server.phases import Phase
from support.agent_http import eventually, replies
from support.agent_server import BUDGETS, MARKS, CustomProvider, Stage, stage
from support.agent_tasks import write_task
from support.faulty_sandboxes import Alive, NeverReady, StopHangs
from support.held_trials import Gate, held

pytestmark = MARKS


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    root = tmp_path / "tasks"
    write_task(root)
    write_task(root, "slow-verifier", verify="sleep 4326")
    return root


def of(sandbox: type) -> CustomProvider:
    return CustomProvider(f"{sandbox.__module__}:{sandbox.__qualname__}")


async def flush(server: Stage, name: str) -> dict[str, Any]:
    answer = await server.client.post(f"{server.url}/flush", json={"session_server_instance_id": name})
    document: dict[str, Any] = answer.json()
    return document


def phases(server: Stage) -> list[Phase]:
    return [run.phase for run in server.runs.snapshot().live]


@asynccontextmanager
async def in_phase(tasks: Path, phase: Phase) -> AsyncIterator[tuple[Stage, asyncio.Future[dict[str, Any]]]]:
    """A run that stays in that phase."""
    gate = Gate()
    starting = phase is Phase.STARTING
    async with stage(tasks, gate, provider=of(NeverReady) if starting else None) as server:
        changes = {"instance_id": "slow-verifier", "agent_name": "nop"} if phase is Phase.GRADING else {}
        run = asyncio.ensure_future(server.run(**changes))
        await eventually(lambda: phases(server) == [phase])
        yield server, run
        gate.opened.set()


# A queued one: test_agent_lifecycle.py.
@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.RUNNING, Phase.GRADING])
async def test_a_flush_ends_a_run_in_any_phase(tasks: Path, phase: Phase) -> None:
    async with in_phase(tasks, phase) as (server, run):
        assert (await flush(server, "instance-a"))["cancelled"] == 1
        answer = await run
        assert (await server.health())["in_flight"] == 0
        (seen,) = server.runs.snapshot().finished
    assert (answer["exit_status"], answer["eval_report"], answer["infra_failure"]) == ("Aborted", {}, True)
    assert (seen.cause, seen.phase) == ("flush", Phase.DONE)


async def test_a_reward_that_was_about_to_come_is_not_kept_for_a_flushed_trial(tasks: Path) -> None:
    async with in_phase(tasks, Phase.GRADING) as (server, run):
        await flush(server, "instance-a")
        assert (await run)["reward"] == 0.0


@pytest.mark.parametrize("cleanup_s", [30.0, 0.1], ids=["Harbor comes back", "by force"])
async def test_a_reward_that_was_given_is_not_lost_to_a_client_or_a_server_that_leaves(
    tasks: Path, cleanup_s: float
) -> None:
    budgets = replace(BUDGETS, cleanup_s=cleanup_s)
    async with stage(tasks, replies("TASK_DONE"), provider=of(StopHangs), budgets=budgets) as server:
        body = server.body(instance_id="write-greeting", agent_name="oracle")
        asking = asyncio.ensure_future(server.run(**body))
        await eventually(lambda: phases(server) == [Phase.STOPPING])
        asking.cancel()
        await eventually(lambda: server.runs.outcomes.total() == 1)
        answer = await server.run(**body)
    assert (answer["exit_status"], answer["reward"], answer["infra_failure"]) == ("Submitted", 1.0, False)
    assert answer["warnings"] == ["after grading: cancelled: client_gone"]


async def test_runs_get_their_slots_in_the_order_in_which_they_came(tasks: Path) -> None:
    gate = Gate()
    async with stage(tasks, gate, max_concurrent=1) as server:
        runs = []
        for number in range(4):
            runs.append(asyncio.ensure_future(server.run(session_server_instance_id=str(number))))
            await eventually(queue_of(server, number + 1))
        gate.opened.set()
        await asyncio.gather(*runs)
        assert [run.session for run in server.runs.snapshot().finished] == ["3", "2", "1", "0"]


def queue_of(server: Stage, number: int) -> Callable[[], bool]:
    return lambda: len(server.runs.live) == number


async def test_waiting_counts_in_the_total_and_not_in_the_agents_time(tasks: Path) -> None:
    async with held(tasks, ("a", 1), ("b", 1), slots=1) as (server, gate, runs):
        await eventually(lambda: server.runs.snapshot().live[1].age_s > 0.5)
        gate.opened.set()
        await runs["a"][0]
        answer = await runs["b"][0]
    waited = answer["phase_seconds"]["queue"]
    assert waited > 0.5
    assert answer["agent_metrics"]["total_time"] >= waited + answer["agent_metrics"]["agent_run_time"]


async def test_no_more_sandboxes_are_alive_than_there_are_slots(tasks: Path) -> None:
    Alive.now = Alive.peak = 0
    async with stage(tasks, replies("TASK_DONE"), provider=of(Alive), max_concurrent=2) as server:
        await asyncio.gather(*(server.run() for _ in range(6)))
        assert server.runs.outcomes.total() == 6
    assert (Alive.now, Alive.peak) == (0, 2)


async def test_every_answer_is_counted_by_its_outcome(tasks: Path) -> None:
    async with stage(tasks, replies("TASK_DONE")) as server:
        await server.run()
        await server.run(instance_id="no-such-task")
        await server.run(instance_id="..")
        shown = (await server.client.get(f"{server.url}/metrics")).text
        outcomes = (await server.health())["outcomes"]
    expected = {"Submitted": 1, "TaskNotFound": 1, "InvalidInstanceId": 1}
    assert outcomes == expected
    for outcome, count in expected.items():
        assert f'harborrl_agent_trials_total{{outcome="{outcome}"}} {count}.0' in shown
