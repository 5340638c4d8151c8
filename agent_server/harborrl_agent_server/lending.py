"""Slots of a pod, lent to its worker processes one by one over a Unix socket: one queue, in the order of asking.

Lines both ways. A worker says `take POOL N` and hears `have N` when its turn has come; `drop N` takes the wish back, or
gives back what it had. `beat` says that its event loop turns. What a worker holds comes back when its connection ends.
"""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import override

from harborrl_agent_server.admission import Slots

SLOTS, STARTS = "slots", "starts"


class Lender:
    """The dispatcher's side."""

    def __init__(self, pools: Mapping[str, Slots], heard: Callable[[int], None]) -> None:
        """`heard` is told the number of a worker that has said something."""
        self._pools = pools
        self._heard = heard

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One worker, from its number in the first line to the end of its connection."""
        wishes: dict[str, tuple[Slots, asyncio.Future[None]]] = {}
        try:
            worker = int(await reader.readline() or b"-1")
            while line := (await reader.readline()).decode().split():
                self._heard(worker)
                match line:
                    case ["take", pool, number]:
                        wishes[number] = (self._pools[pool], self._lent(self._pools[pool], number, writer))
                    case ["drop", number]:
                        take_back(*wishes.pop(number))
                    case _:
                        pass  # a beat
        except (ConnectionError, asyncio.CancelledError):
            pass  # the worker was killed, or this process ends: asyncio's streams would log a cancelled handler
        finally:
            for wish in wishes.values():
                take_back(*wish)
            writer.close()

    def _lent(self, pool: Slots, number: str, writer: asyncio.StreamWriter) -> asyncio.Future[None]:
        turn = asyncio.ensure_future(pool.take())

        def tell(done: asyncio.Future[None]) -> None:
            if not done.cancelled():
                writer.write(f"have {number}\n".encode())

        turn.add_done_callback(tell)
        return turn


def take_back(pool: Slots, turn: asyncio.Future[None]) -> None:
    if turn.done():
        pool.give_back()
    else:
        turn.cancel()


class Loan:
    """A worker's connection to the lender. `lost` is set when that has gone, and with it all that was lent."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._numbers = itertools.count()
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self.lost = asyncio.Event()

    def say(self, line: str) -> None:
        if not self.lost.is_set():
            self._writer.write(f"{line}\n".encode())

    def beat(self) -> None:
        self.say("beat")

    async def take(self, pool: str) -> str:
        number = str(next(self._numbers))
        turn = self._waiting[number] = asyncio.get_running_loop().create_future()
        self.say(f"take {pool} {number}")
        try:
            await turn
        except asyncio.CancelledError:
            self.say(f"drop {number}")
            raise
        finally:
            del self._waiting[number]
        return number

    async def listen(self, reader: asyncio.StreamReader) -> None:
        """Until the connection ends, in the middle of a line perhaps."""
        with contextlib.suppress(ConnectionError):
            while (line := await reader.readline()).endswith(b"\n"):
                turn = self._waiting.get(line.decode().split()[-1])
                if turn is not None and not turn.done():
                    turn.set_result(None)
        self.lost.set()


class LentSlots(Slots):
    """A worker's slots: `capacity` is the pod's, what is taken and queued its own."""

    def __init__(self, loan: Loan, pool: str, capacity: int) -> None:
        super().__init__(capacity)
        self._loan = loan
        self._pool = pool
        self._held: list[str] = []
        self._wanted = 0

    @property
    @override
    def queued(self) -> int:
        return self._wanted

    @override
    async def take(self) -> None:
        self._wanted += 1
        try:
            self._held.append(await self._loan.take(self._pool))
        finally:
            self._wanted -= 1
        self.taken += 1

    @override
    def give_back(self) -> None:
        self._loan.say(f"drop {self._held.pop()}")
        self.taken -= 1


@contextlib.asynccontextmanager
async def borrowing(socket: Path, worker: int) -> AsyncIterator[Loan]:
    """Until the end of the worker; raises `OSError` where no dispatcher listens."""
    reader, writer = await asyncio.open_unix_connection(socket)
    loan = Loan(writer)
    loan.say(str(worker))
    listening = asyncio.ensure_future(loan.listen(reader))
    try:
        yield loan
    finally:
        listening.cancel()
        writer.close()
