"""Processes that another process starts: their output, their exit, and what is left when either side ends."""

import asyncio
import io
import os
import signal
from collections.abc import AsyncIterator

import pytest

from harborrl_agent_server.sandboxes.processes import Spawner, SpawnError
from harborrl_agent_server.sandboxes.spawner import DESCRIPTORS
from support.agent_http import eventually
from support.descriptors import open_here, room_for


@pytest.fixture
async def spawner() -> AsyncIterator[Spawner]:
    made = Spawner({"PATH": os.environ["PATH"], "GREETING": "hello"})
    yield made
    await made.close()


async def run(spawner: Spawner, *argv: str, stdin: bytes | None = None) -> tuple[int, bytes, bytes]:
    out, err = bytearray(), bytearray()
    given = None if stdin is None else io.BytesIO(stdin)
    code = await spawner.run(argv, stdin=given, stdout=out.extend, stderr=err.extend)
    return code, bytes(out), bytes(err)


async def test_output_error_output_and_exit_code_arrive(spawner: Spawner) -> None:
    code, out, err = await run(spawner, "sh", "-c", "echo $GREETING; echo no >&2; exit 7")
    assert (code, out, err) == (7, b"hello\n", b"no\n")


async def test_a_signal_is_a_negative_code(spawner: Spawner) -> None:
    assert (await run(spawner, "sh", "-c", "kill -9 $$"))[0] == -signal.SIGKILL


async def test_input_is_carried_whole_and_then_closed(spawner: Spawner) -> None:
    sent = os.urandom(3 * 1024 * 1024)
    code, out, _ = await run(spawner, "cat", stdin=sent)
    assert (code, out) == (0, sent)


async def test_a_process_need_not_read_its_input(spawner: Spawner) -> None:
    assert (await run(spawner, "true", stdin=bytes(1024 * 1024)))[0] == 0


async def test_a_program_that_is_not_there_is_an_error_and_the_next_one_runs(spawner: Spawner) -> None:
    with pytest.raises(SpawnError, match="No such file"):
        await run(spawner, "no-such-program")
    assert (await run(spawner, "true"))[0] == 0


async def test_two_hundred_at_once_do_not_disturb_each_other(spawner: Spawner) -> None:
    found = await asyncio.gather(*(run(spawner, "echo", str(number)) for number in range(200)))
    assert [out for _, out, _ in found] == [f"{number}\n".encode() for number in range(200)]


async def test_a_sink_that_fails_ends_the_wait(spawner: Spawner) -> None:
    def full(_: bytes) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        await spawner.run(["yes"], stdin=None, stdout=full, stderr=full)


async def test_a_spawner_that_is_killed_fails_what_waits_and_the_next_process_has_a_new_one(spawner: Spawner) -> None:
    waiting = asyncio.ensure_future(run(spawner, "sleep", "60"))
    await eventually(lambda: spawner._process is not None)
    assert spawner._process is not None
    spawner._process.kill()
    with pytest.raises(SpawnError, match="the spawner ended"):
        await waiting
    assert (await run(spawner, "true"))[0] == 0


@pytest.mark.parametrize("more", range(5))
async def test_a_server_at_its_limit_of_descriptors_loses_none(spawner: Spawner, more: int) -> None:
    await run(spawner, "true")
    before = open_here()
    with room_for(more):
        for _ in range(3):
            with pytest.raises(OSError, match="Too many open files"):
                await run(spawner, "cat", stdin=b"x")
    assert open_here() == before


async def test_a_server_without_room_for_a_spawner_loses_none() -> None:
    spawner, before = Spawner({}), open_here()
    with room_for(8), pytest.raises(OSError, match="Too many open files"):
        await run(spawner, "true")
    assert open_here() == before


@pytest.mark.parametrize("more", range(DESCRIPTORS + 1))
async def test_a_spawner_at_its_limit_says_so_and_goes_on(spawner: Spawner, more: int) -> None:
    await run(spawner, "true")
    assert spawner._process is not None
    with room_for(more, spawner._process.pid), pytest.raises(SpawnError, match="Too many open files"):
        await run(spawner, "echo", "hello")
    assert (await run(spawner, "echo", "hello"))[1] == b"hello\n"


async def test_nothing_is_left_open_after_many_processes(spawner: Spawner) -> None:
    await run(spawner, "true")
    before = open_here()
    for _ in range(20):
        await run(spawner, "cat", stdin=b"x")
    await eventually(lambda: open_here() <= before)


async def test_input_that_a_child_in_the_background_never_reads_is_not_kept_for_it(spawner: Spawner) -> None:
    await run(spawner, "true")
    before = open_here()
    _, out, _ = await run(
        spawner, "sh", "-c", "exec 3<&0; sleep 60 >/dev/null 2>&1 & echo $!", stdin=bytes(1024 * 1024)
    )
    try:
        await eventually(lambda: open_here() <= before, limit_s=5)
    finally:
        os.kill(int(out), signal.SIGKILL)
