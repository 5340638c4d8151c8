"""When a worker's process is given up, and when the next one takes its place."""

import asyncio
from pathlib import Path

from harborrl_agent_server.dispatch.lives import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    START_SECONDS,
    STEADY_SECONDS,
    Signs,
    pause_after,
)
from harborrl_agent_server.dispatch.workers import Workers
from harborrl_agent_server.guard import HUNG_SECONDS
from support.agent_http import eventually


def test_a_worker_that_hangs_while_it_starts_is_given_up_too() -> None:
    signs = Signs(started=100)
    assert not signs.are_missing(100 + START_SECONDS)
    assert signs.are_missing(101 + START_SECONDS)


def test_from_its_first_sign_on_a_worker_owes_the_next_sooner() -> None:
    signs = Signs(started=100)
    signs.heard(150)
    assert not signs.are_missing(150 + HUNG_SECONDS)
    assert signs.are_missing(151 + HUNG_SECONDS)


def test_a_worker_that_dies_as_soon_as_it_starts_does_not_keep_a_processor_busy() -> None:
    pauses, pause = [], FIRST_PAUSE
    for _ in range(7):
        pause = pause_after(3, pause)
        pauses.append(pause)
    assert pauses == [2, 4, 8, 16, LONGEST_PAUSE, LONGEST_PAUSE, LONGEST_PAUSE]


def test_one_that_has_lived_is_started_again_at_once_however_often_its_predecessors_died() -> None:
    assert pause_after(STEADY_SECONDS + 1, LONGEST_PAUSE) == FIRST_PAUSE


async def test_workers_that_are_still_starting_when_they_are_closed_are_gone_then(tmp_path: Path) -> None:
    before = asyncio.all_tasks()
    workers = Workers(2, tmp_path, [])
    starting = asyncio.ensure_future(workers.start())
    await eventually(lambda: all(child.is_running for child in workers.children))
    starting.cancel()
    await workers.close()
    assert not any(child.is_running for child in workers.children)
    assert asyncio.all_tasks() == before
