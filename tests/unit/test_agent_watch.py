"""What trials wait for when they wait for a pod."""

import asyncio

from harborrl_agent_server.sandboxes.watch import PodView


async def test_a_change_that_comes_before_the_waiter_has_run_is_not_lost() -> None:
    view = PodView()
    change = asyncio.ensure_future(view.change())
    view.update({"metadata": {"name": "sb"}})
    async with asyncio.timeout(10):
        await change


async def test_a_waiter_sees_the_next_change_and_not_the_last() -> None:
    view = PodView()
    view.update({"metadata": {"name": "sb"}})
    change = asyncio.ensure_future(view.change())
    await asyncio.sleep(0)
    assert not change.done()
    view.update(None)
    async with asyncio.timeout(10):
        await change
    assert view.gone
