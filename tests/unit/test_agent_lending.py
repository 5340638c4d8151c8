"""Slots that a dispatcher lends to its workers: one queue, and nothing is lost with a worker."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from harborrl_agent_server.admission import Slots
from harborrl_agent_server.lending import Lender, LentSlots, Loan, borrowing
from support.agent_http import eventually


@dataclass
class Pod:
    pool: Slots
    socket: Path
    heard: list[int] = field(default_factory=list)

    @contextlib.asynccontextmanager
    async def worker(self, index: int) -> AsyncIterator[tuple[LentSlots, Loan]]:
        async with borrowing(self.socket, index) as loan:
            yield LentSlots(loan, "slots", self.pool.capacity), loan


@pytest.fixture
async def pod(tmp_path: Path) -> AsyncIterator[Pod]:
    made = Pod(Slots(1), tmp_path / "lend")
    server = await asyncio.start_unix_server(Lender({"slots": made.pool}, made.heard.append), made.socket)
    yield made
    server.close()


async def test_turns_come_in_the_order_of_asking_whichever_worker_asks(pod: Pod) -> None:
    async with pod.worker(0) as (first, _), pod.worker(1) as (second, _):
        await first.take()
        of_second = asyncio.ensure_future(second.take())
        await eventually(lambda: pod.pool.queued == 1)
        of_first = asyncio.ensure_future(first.take())
        await eventually(lambda: pod.pool.queued == 2)
        assert (first.taken, first.queued, second.queued, first.capacity) == (1, 1, 1, 1)
        first.give_back()
        await of_second
        assert not of_first.done()
        second.give_back()
        await of_first


async def test_a_wish_that_is_taken_back_leaves_the_queue(pod: Pod) -> None:
    async with pod.worker(0) as (slots, _):
        await slots.take()
        wish = asyncio.ensure_future(slots.take())
        await eventually(lambda: pod.pool.queued == 1)
        wish.cancel()
        await asyncio.gather(wish, return_exceptions=True)
        await eventually(lambda: pod.pool.queued == 0)
        slots.give_back()
        await eventually(lambda: pod.pool.taken == 0)
    assert (slots.taken, slots.queued) == (0, 0)


async def test_a_wish_taken_back_while_its_turn_is_on_the_way_gives_the_slot_back(pod: Pod) -> None:
    async with pod.worker(0) as (slots, _):
        await slots.take()
        wish = asyncio.ensure_future(slots.take())
        await eventually(lambda: pod.pool.queued == 1)
        slots.give_back()
        wish.cancel()
        await asyncio.gather(wish, return_exceptions=True)
        await eventually(lambda: pod.pool.taken == 0 and pod.pool.queued == 0)


async def test_what_a_dead_worker_held_and_wished_comes_back(pod: Pod) -> None:
    async with pod.worker(1) as (living, _):
        async with pod.worker(0) as (slots, _):
            await slots.take()
            wish = asyncio.ensure_future(slots.take())
            await eventually(lambda: pod.pool.queued == 1)
        await living.take()
        wish.cancel()
    await eventually(lambda: pod.pool.taken == 0)


async def test_a_worker_learns_of_a_dispatcher_that_died_in_the_middle_of_a_word(tmp_path: Path) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"take slots 10\n")
        writer.write(b"have 1")
        writer.close()

    server = await asyncio.start_unix_server(serve, tmp_path / "lend")
    async with borrowing(tmp_path / "lend", 7) as loan:
        wishes = [asyncio.ensure_future(loan.take("slots")) for _ in range(11)]
        async with asyncio.timeout(10):
            await loan.lost.wait()
        assert not any(wish.done() for wish in wishes)
        for wish in wishes:
            wish.cancel()
    server.close()


async def test_the_end_of_the_lender_is_no_fault_of_a_loan(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    socket, heard = tmp_path / "lend", list[int]()
    server = await asyncio.start_unix_server(Lender({"slots": Slots(1)}, heard.append), socket)
    before = asyncio.all_tasks()
    async with borrowing(socket, 0) as loan:
        loan.beat()
        await eventually(lambda: heard == [0])
        lending = {task for task in asyncio.all_tasks() - before if "Lender" in repr(task.get_coro())}
        for task in lending:
            task.cancel()
        await asyncio.wait(lending)
        await loan.lost.wait()
    server.close()
    assert lending
    assert caplog.records == []


async def test_a_worker_learns_that_its_dispatcher_has_gone_and_gives_signs_of_life_before(tmp_path: Path) -> None:
    connected: list[asyncio.StreamWriter] = []
    heard: list[int] = []
    lender = Lender({"slots": Slots(1)}, heard.append)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.append(writer)
        await lender(reader, writer)

    server = await asyncio.start_unix_server(serve, tmp_path / "lend")
    async with borrowing(tmp_path / "lend", 7) as loan:
        loan.beat()
        await eventually(lambda: heard == [7])
        connected[0].close()
        await loan.lost.wait()
        loan.beat()  # nobody hears it, and nothing breaks
    server.close()
