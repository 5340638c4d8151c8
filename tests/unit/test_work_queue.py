"""Many events become one pass, a job never has two at once, and one bad job does not stop the others."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from harborrl_operator.work_queue import MOST_AT_ONCE, Key, WorkQueue

A, B = ("n", "a"), ("n", "b")


@asynccontextmanager
async def running(work: Callable[[Key], Awaitable[float | None]]) -> AsyncIterator[WorkQueue]:
    queue = WorkQueue(work)
    task = asyncio.create_task(queue.run())
    try:
        yield queue
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_many_events_of_one_job_become_one_pass() -> None:
    passes: list[Key] = []
    done = asyncio.Event()

    async def work(key: Key) -> None:
        passes.append(key)
        if key == B:
            done.set()

    async with running(work) as queue:
        for _ in range(100):
            queue.add(A, after=0.0)
        queue.add(B, after=0.01)
        await asyncio.wait_for(done.wait(), 60)
    assert passes == [A, B]


async def test_an_event_during_a_pass_asks_for_another_one_after_it() -> None:
    begun, release, finished = asyncio.Event(), asyncio.Event(), asyncio.Event()
    count = active = most = 0

    async def work(_: Key) -> None:
        nonlocal count, active, most
        count, active = count + 1, active + 1
        most = max(most, active)
        begun.set()
        await release.wait()
        active -= 1
        if count == 2:
            finished.set()

    async with running(work) as queue:
        queue.add(A, after=0.0)
        await asyncio.wait_for(begun.wait(), 60)
        queue.add(A, after=0.0)
        release.set()
        await asyncio.wait_for(finished.wait(), 60)
    assert (count, most) == (2, 1)


async def test_a_pass_that_asks_to_look_again_is_called_again() -> None:
    calls = 0
    done = asyncio.Event()

    async def work(_: Key) -> float | None:
        nonlocal calls
        calls += 1
        if calls == 3:
            done.set()
            return None
        return 0.0

    async with running(work) as queue:
        queue.add(A, after=0.0)
        await asyncio.wait_for(done.wait(), 60)
        await asyncio.sleep(0)
    assert calls == 3


async def test_a_failing_pass_is_logged_retried_and_leaves_the_others_alone(caplog: pytest.LogCaptureFixture) -> None:
    done = asyncio.Event()

    async def work(key: Key) -> None:
        if key == A:
            raise RuntimeError("bug")
        done.set()

    async with running(work) as queue:
        queue.add(A, after=0.0)
        queue.add(B, after=0.0)
        await asyncio.wait_for(done.wait(), 60)
        assert len(queue) == 1
    assert "pass over n/a failed, again in 1 s" in caplog.text


async def test_two_hundred_jobs_are_served_before_a_failing_one_is_tried_again() -> None:
    failing = [("n", f"failing-{index}") for index in range(20)]
    sound = [("n", f"sound-{index}") for index in range(180)]
    begun: list[Key] = []
    served = asyncio.Event()

    async def work(key: Key) -> None:
        begun.append(key)
        if key in failing:
            raise RuntimeError("unreachable")
        if set(sound) <= set(begun):
            served.set()

    async with running(work) as queue:
        for key in (*failing, *sound):
            queue.add(key, after=0.0)
        await asyncio.wait_for(served.wait(), 60)
    assert begun[: len(failing) + len(sound)] == [*failing, *sound]


async def test_passes_that_never_end_leave_their_places_to_the_other_jobs() -> None:
    hanging = [("n", f"hanging-{index}") for index in range(20)]
    sound = [("n", f"sound-{index}") for index in range(180)]
    begun: list[Key] = []
    served, release = asyncio.Event(), asyncio.Event()

    async def work(key: Key) -> None:
        begun.append(key)
        if key in hanging:
            await release.wait()
        elif set(sound) <= set(begun):
            served.set()

    queue = WorkQueue(work, patience=0.01)
    task = asyncio.create_task(queue.run())
    for key in (*hanging, *sound):
        queue.add(key, after=0.0)
    await asyncio.wait_for(served.wait(), 60)
    assert begun == [*hanging, *sound]
    release.set()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_not_even_passes_that_wait_pile_up_without_bound() -> None:
    begun = 0
    full, release = asyncio.Event(), asyncio.Event()

    async def work(_: Key) -> None:
        nonlocal begun
        begun += 1
        if begun == MOST_AT_ONCE:
            full.set()
        await release.wait()

    queue = WorkQueue(work, patience=0.0)
    task = asyncio.create_task(queue.run())
    for index in range(2 * MOST_AT_ONCE):
        queue.add(("n", str(index)), after=0.0)
    await asyncio.wait_for(full.wait(), 60)
    for _ in range(10):
        await asyncio.sleep(0)
    assert begun == MOST_AT_ONCE
    task.cancel()
    release.set()
    await asyncio.gather(task, return_exceptions=True)


async def test_stopping_lets_the_pass_under_way_finish() -> None:
    begun, release = asyncio.Event(), asyncio.Event()
    finished = False

    async def work(_: Key) -> None:
        nonlocal finished
        begun.set()
        await release.wait()
        finished = True

    queue = WorkQueue(work)
    task = asyncio.create_task(queue.run())
    queue.add(A, after=0.0)
    await asyncio.wait_for(begun.wait(), 60)
    task.cancel()
    release.set()
    await asyncio.gather(task, return_exceptions=True)
    assert finished
