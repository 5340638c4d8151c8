"""The driver starts with the head; its actors are placed when the other pods have joined."""

import asyncio
from collections.abc import Iterator

import pytest

from harborrl_trainer.errors import InfrastructureError
from harborrl_trainer.native.actors import await_nodes


def ticking() -> Iterator[float]:
    return iter(float(second) for second in range(1000))


async def test_placing_waits_for_the_worker_that_joins_later() -> None:
    joined = iter([1, 1, 2])
    pauses: list[float] = []
    seconds = ticking()

    async def pause(length: float) -> None:
        pauses.append(length)

    await await_nodes(
        2, asyncio.Event(), timeout_s=60, count=lambda: next(joined), clock=lambda: next(seconds), pause=pause
    )
    assert len(pauses) == 2


async def test_a_worker_that_never_joins_ends_the_attempt_with_the_count() -> None:
    seconds = ticking()
    with pytest.raises(InfrastructureError, match=r"1 of 2 nodes joined within 60 s"):
        await await_nodes(2, asyncio.Event(), timeout_s=60, count=lambda: 1, clock=lambda: next(seconds), pause=at_once)


async def test_a_stop_request_is_heard_while_a_worker_is_missing() -> None:
    stop = asyncio.Event()

    async def pause(_seconds: float) -> None:
        stop.set()

    await await_nodes(2, stop, timeout_s=60, count=lambda: 1, clock=lambda: 0.0, pause=pause)
    assert stop.is_set()


async def at_once(_seconds: float) -> None:
    pass
