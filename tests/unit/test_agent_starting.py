"""How many sandboxes are made at once, and what a trial that waits for its turn is meanwhile."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from harborrl_agent_server.phases import Phase
from support.agent_http import eventually, replies
from support.agent_server import BUDGETS, MARKS, CustomProvider, Stage, stage
from support.faulty_sandboxes import HeldAtStart, NeverStarts

pytestmark = MARKS


@pytest.fixture
def starts() -> asyncio.Event:
    HeldAtStart.go, HeldAtStart.now, HeldAtStart.peak = asyncio.Event(), 0, 0
    return HeldAtStart.go


HELD = CustomProvider(f"{HeldAtStart.__module__}:{HeldAtStart.__qualname__}")


def phases(server: Stage) -> Counter[Phase]:
    """How many runs are in each. Which of those that came together begins first hangs on whose task was read first."""
    return Counter(run.phase for run in server.runs.snapshot().live)


async def test_no_more_sandboxes_are_made_at_once_than_allowed(tasks: Path, starts: asyncio.Event) -> None:
    async with stage(tasks, replies("TASK_DONE"), provider=HELD, max_concurrent=6, start_concurrency=2) as server:
        runs = [asyncio.ensure_future(server.run()) for _ in range(6)]
        await eventually(lambda: len(server.runs.live) == 6 and HeldAtStart.now == 2)
        assert phases(server) == {Phase.STARTING: 2, Phase.QUEUED: 4}
        starts.set()
        answers = await asyncio.gather(*runs)
    assert HeldAtStart.peak == 2
    assert {answer["exit_status"] for answer in answers} == {"Submitted"}


async def test_all_are_made_at_once_without_a_limit(tasks: Path, starts: asyncio.Event) -> None:
    async with stage(tasks, replies("TASK_DONE"), provider=HELD, max_concurrent=3, start_concurrency=0) as server:
        runs = [asyncio.ensure_future(server.run()) for _ in range(3)]
        await eventually(lambda: HeldAtStart.now == 3)
        starts.set()
        await asyncio.gather(*runs)


async def test_a_trial_that_waits_for_its_start_is_queued_and_none_of_its_budgets_runs(
    tasks: Path, starts: asyncio.Event
) -> None:
    async with stage(tasks, replies("TASK_DONE"), provider=HELD, start_concurrency=1) as server:
        runs = [asyncio.ensure_future(server.run()) for _ in range(2)]
        await eventually(lambda: phases(server) == {Phase.STARTING: 1, Phase.QUEUED: 1})
        await eventually(lambda: server.runs.snapshot().live[1].age_s > 0.5)
        starts.set()
        answers = await asyncio.gather(*runs)
    waited = max(answer["phase_seconds"]["queue"] for answer in answers)
    assert waited > 0.5


async def test_a_flush_ends_a_trial_before_its_sandbox_is_begun(tasks: Path, starts: asyncio.Event) -> None:
    async with stage(tasks, replies("TASK_DONE"), provider=HELD, start_concurrency=1) as server:
        first = asyncio.ensure_future(server.run(session_server_instance_id="a"))
        await eventually(lambda: HeldAtStart.now == 1)
        second = asyncio.ensure_future(server.run(session_server_instance_id="b"))
        await eventually(lambda: len(server.runs.live) == 2)
        body = {"session_server_instance_id": "b"}
        assert (await server.client.post(f"{server.url}/flush", json=body)).json()["cancelled"] == 1
        assert (await second)["exit_status"] == "Aborted"
        assert (await server.health())["in_flight"] == 1
        starts.set()
        assert (await first)["exit_status"] == "Submitted"
    assert HeldAtStart.peak == 1


async def test_a_trial_that_could_no_longer_end_in_time_is_not_started(tasks: Path, starts: asyncio.Event) -> None:
    async with stage(tasks, replies("TASK_DONE"), provider=HELD, start_concurrency=1) as server:
        first = asyncio.ensure_future(server.run())
        await eventually(lambda: HeldAtStart.now == 1)
        late = await server.run(deadline_s=BUDGETS.total() + 0.2)
        assert (late["exit_status"], (await server.health())["in_flight"]) == ("QueueTimeout", 1)
        assert "--start-concurrency" in late["message"]
        starts.set()
        await first


async def test_a_start_that_fails_lets_the_next_one_begin(tasks: Path) -> None:
    provider = CustomProvider(f"{NeverStarts.__module__}:{NeverStarts.__qualname__}")
    async with stage(tasks, replies("TASK_DONE"), provider=provider, start_concurrency=1) as server:
        answers = await asyncio.gather(*(server.run() for _ in range(3)))
        assert server.runs.starts.taken == 0
    assert {answer["exit_status"] for answer in answers} == {"SandboxUnavailable"}
