"""Who asks together is answered together, and nobody by a read that began before they asked."""

import asyncio

import pytest

from harborrl_operator.shared_read import SharedRead


class Source:
    """Counts reads; each waits until it is let go."""

    def __init__(self) -> None:
        self.begun = 0
        self.gates: list[asyncio.Event] = []

    async def read(self) -> int:
        self.begun += 1
        number, gate = self.begun, asyncio.Event()
        self.gates.append(gate)
        await gate.wait()
        return number


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_who_asks_while_a_read_is_under_way_shares_the_next_one() -> None:
    source = Source()
    shared = SharedRead(source.read)
    first = asyncio.create_task(shared())
    await turns()
    later = [asyncio.create_task(shared()) for _ in range(20)]
    await turns()
    assert source.begun == 1
    source.gates[0].set()
    await turns()
    assert (await first, source.begun) == (1, 2)
    source.gates[1].set()
    assert await asyncio.gather(*later) == [2] * 20
    after = asyncio.create_task(shared())
    await turns()
    assert source.begun == 3
    source.gates[2].set()
    assert await after == 3


async def test_one_who_gives_up_does_not_take_the_read_from_the_others() -> None:
    source = Source()
    shared = SharedRead(source.read)
    impatient, patient = asyncio.create_task(shared()), asyncio.create_task(shared())
    await turns()
    impatient.cancel()
    source.gates[0].set()
    assert await patient == 1
    with pytest.raises(asyncio.CancelledError):
        await impatient


async def test_a_read_that_fails_fails_for_all_who_share_it_and_for_nobody_after_them() -> None:
    failures = [ConnectionError("down")]

    async def read() -> str:
        if failures:
            raise failures.pop()
        return "well"

    shared = SharedRead(read)
    failed = await asyncio.gather(shared(), shared(), return_exceptions=True)
    assert [str(one) for one in failed] == ["down", "down"]
    assert await shared() == "well"
