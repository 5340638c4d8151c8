"""Trials that do not end: forced, answered, and tried again until nothing is left of them."""

import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from harborrl_agent_server.phases import Phase
from support.agent_http import eventually, replies
from support.agent_server import BUDGETS, MARKS, CustomProvider, Stage, stage
from support.faulty_sandboxes import StopHangs, Undeletable
from support.held_trials import held

pytestmark = MARKS

LONG = 3600.0
"""Between two tries of the reaper: a test that wants one asks for it."""


@pytest.fixture
def stuck() -> Iterator[type[Undeletable]]:
    Undeletable.stuck = True
    yield Undeletable
    Undeletable.stuck = False


def of(sandbox: type) -> CustomProvider:
    return CustomProvider(f"{sandbox.__module__}:{sandbox.__qualname__}")


def sandbox_processes() -> list[str]:
    """First processes of sandboxes that this process started and that are still alive."""
    command = ["ps", "--ppid", str(os.getpid()), "-o", "args="]
    shown = subprocess.run(command, check=False, capture_output=True, text=True).stdout  # noqa: S603 - our own list
    return [line for line in shown.splitlines() if line.startswith("unshare ")]


async def metric(server: Stage, name: str) -> float:
    lines = (await server.client.get(f"{server.url}/metrics")).text.splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith(f"{name} ")))


async def test_a_stop_that_hangs_is_forced_answered_and_reaped_later(tasks: Path) -> None:
    budgets = replace(BUDGETS, cleanup_s=0.3)
    async with held(tasks, ("a", 1), slots=1, provider=of(StopHangs), budgets=budgets, reap_interval_s=LONG) as (
        server,
        _,
        runs,
    ):
        assert len(sandbox_processes()) == 1
        await server.client.post(f"{server.url}/flush", json={"session_server_instance_id": "a"})
        answer = await runs["a"][0]
        health = await server.health()
        assert (health["in_flight"], health["status"], sandbox_processes()) == (0, "degraded", [])
        (seen,) = server.runs.snapshot().finished
        assert (seen.phase, seen.outcome) == (Phase.LEAKED, "Aborted")
        await server.runs.reaper.reap()
        assert (await server.health())["status"] == "ok"
        assert server.runs.snapshot().finished[0].phase is Phase.DONE
        assert await metric(server, "harborrl_agent_leaked_trials_total") == 1
        assert await metric(server, "harborrl_agent_leftover_trials") == 0
    assert answer["exit_status"] == "Aborted"


async def test_a_sandbox_that_cannot_be_removed_costs_the_trial_nothing_and_is_tried_again(
    tasks: Path, stuck: type[Undeletable]
) -> None:
    async with stage(tasks, replies("TASK_DONE"), provider=of(stuck), reap_interval_s=LONG) as server:
        answer = await server.run()
        assert (await server.health())["status"] == "degraded"
        await server.runs.reaper.reap()
        assert len(sandbox_processes()) == 1
        assert await metric(server, "harborrl_agent_leftover_trials") == 1
        stuck.stuck = False
        await server.runs.reaper.reap()
        assert (sandbox_processes(), (await server.health())["status"]) == ([], "ok")
    assert (answer["exit_status"], answer["eval_report"]) == ("Submitted", {"reward": 0.0})


async def test_the_reaper_goes_on_by_itself_until_nothing_is_left(tasks: Path, stuck: type[Undeletable]) -> None:
    async with stage(tasks, replies("TASK_DONE"), provider=of(stuck), reap_interval_s=0.01) as server:
        await server.run()
        stuck.stuck = False
        await eventually(lambda: not server.runs.reaper.left)
        assert sandbox_processes() == []


async def test_a_degraded_server_goes_on_with_all_its_slots(tasks: Path, stuck: type[Undeletable]) -> None:
    async with stage(tasks, replies("TASK_DONE"), provider=of(stuck), reap_interval_s=LONG, max_concurrent=1) as server:
        for _ in range(2):
            assert (await server.run())["exit_status"] == "Submitted"
        assert ((await server.health())["free"], len(server.runs.reaper.left)) == (1, 2)
        assert (await server.client.get(f"{server.url}/ready")).status_code == 200
        stuck.stuck = False
        await server.runs.reaper.reap()
