"""Slots are handed on in the order of asking, and none is lost."""

import asyncio

from harborrl_agent_server.admission import Slots


async def turn(slots: Slots) -> "asyncio.Task[None]":
    task = asyncio.ensure_future(slots.take())
    await asyncio.sleep(0)
    return task


async def test_slots_are_given_in_the_order_of_asking() -> None:
    slots = Slots(1)
    first, second, third = [await turn(slots) for _ in range(3)]
    assert (first.done(), slots.taken, slots.queued) == (True, 1, 2)
    slots.give_back()
    await asyncio.sleep(0)
    assert (second.done(), third.done()) == (True, False)


async def test_a_waiter_that_leaves_is_passed_over() -> None:
    slots = Slots(1)
    _, second, third = [await turn(slots) for _ in range(3)]
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    slots.give_back()
    await asyncio.sleep(0)
    assert third.done()
    assert (slots.taken, slots.queued) == (1, 0)


async def test_a_slot_handed_to_a_waiter_that_is_cancelled_in_the_same_moment_is_given_on() -> None:
    slots = Slots(1)
    _, second = [await turn(slots) for _ in range(2)]
    slots.give_back()
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    assert (slots.taken, slots.free) == (0, 1)


async def test_a_waiter_that_leaves_while_a_slot_comes_free_is_only_cancelled() -> None:
    slots = Slots(1)
    _, second, third = [await turn(slots) for _ in range(3)]
    second.cancel()
    slots.give_back()
    [left] = await asyncio.gather(second, return_exceptions=True)
    assert isinstance(left, asyncio.CancelledError)
    assert third.done()
    assert (slots.taken, slots.queued) == (1, 0)


async def test_a_newcomer_does_not_overtake_the_queue() -> None:
    slots = Slots(1)
    _, second = [await turn(slots) for _ in range(2)]
    slots.give_back()
    late = await turn(slots)
    assert (second.done(), late.done()) == (True, False)
