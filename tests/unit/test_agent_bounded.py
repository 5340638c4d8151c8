"""Work that nobody waits for: its failure is told."""

import asyncio
import logging

import pytest

from harborrl_agent_server.bounded import alone, finish


async def broken() -> None:
    raise ValueError("a bug")


async def test_what_runs_alone_tells_its_failure_at_once(caplog: pytest.LogCaptureFixture) -> None:
    await asyncio.wait({alone(broken())})
    (told,) = caplog.records
    assert (told.levelno, told.message) == (logging.ERROR, "broken ended with ValueError: a bug")
    assert told.exc_info


async def test_a_teardown_that_fails_costs_its_caller_nothing_and_is_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    assert await finish(broken(), 10)
    assert [told.message for told in caplog.records] == ["broken ended with ValueError: a bug"]


async def test_a_cancelled_caller_leaves_when_its_teardown_has_ended() -> None:
    ended = asyncio.Event()
    caller = asyncio.ensure_future(finish(ended.wait(), 10))
    await asyncio.sleep(0)
    caller.cancel()
    await asyncio.sleep(0)
    assert not caller.done()
    ended.set()
    with pytest.raises(asyncio.CancelledError):
        await caller


async def test_work_that_is_cancelled_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    task = alone(asyncio.Event().wait())
    task.cancel()
    await asyncio.wait({task})
    assert caplog.records == []
