"""A tasks volume that hangs costs the trials of its tasks, and nobody else."""

import asyncio
import contextlib
import fcntl
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from harborrl_agent_server.phases import Phase
from support.agent_http import eventually, replies
from support.agent_server import MARKS, Stage, stage
from support.agent_tasks import write_task
from support.sandbox_api import SandboxApi, provided, sandbox_of

pytestmark = MARKS

SOLVES = "```sh\necho hello >greeting.txt\n```\nTASK_DONE"

BREAKS_S = 45

F_SETSIG = 10
"""Of Linux; Python has no name for it."""

SHORT = 0.3
"""Seconds for a volume that never answers."""


class Lease:
    """Whoever opens the file waits until it is let go, as with a mount whose server is away.

    The kernel ends it itself after `BREAKS_S` (`/proc/sys/fs/lease-break-time`).
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR)
        fcntl.fcntl(self._file, F_SETSIG, signal.SIGURG)  # what tells us that somebody waits; ignored by default
        fcntl.fcntl(self._file, fcntl.F_SETLEASE, fcntl.F_WRLCK)

    def let_go(self) -> None:
        fcntl.fcntl(self._file, fcntl.F_SETLEASE, fcntl.F_UNLCK)

    def close(self) -> None:
        os.close(self._file)


@pytest.fixture
def hangs(tasks: Path) -> Iterator[Lease]:
    """A task whose instruction cannot be read."""
    with contextlib.closing(Lease(write_task(tasks, "hangs") / "instruction.md")) as lease:
        yield lease


async def test_an_environment_that_cannot_be_read_for_its_images_name_holds_nobody_up(tmp_path: Path) -> None:
    """A verifier's own sandbox asks for it while other trials run."""
    waited, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGURG, waited.set)
    config = {"images": {"template": "registry.example/{task}:{hash}"}}
    async with provided(SandboxApi(), tmp_path, config) as provider:
        sandbox = sandbox_of(provider, tmp_path)
        dockerfile = sandbox.environment_dir / "Dockerfile"
        dockerfile.write_text("FROM scratch")
        with contextlib.closing(Lease(dockerfile)) as lease:
            begun = loop.time()
            starting = asyncio.ensure_future(sandbox.start(force_build=False))
            await waited.wait()
            assert loop.time() - begun < BREAKS_S, "the loop stood still until the kernel gave the file free"
            lease.let_go()
        await starting
    loop.remove_signal_handler(signal.SIGURG)


def live(server: Stage) -> list[Phase]:
    return [run.phase for run in server.runs.snapshot().live]


async def test_while_a_task_cannot_be_read_the_server_answers_and_other_trials_run(tasks: Path, hangs: Lease) -> None:
    async with stage(tasks, replies(SOLVES, SOLVES), max_concurrent=2) as server:
        waits = asyncio.ensure_future(server.run(instance_id="hangs"))
        await eventually(lambda: live(server) == [Phase.STARTING])
        assert (await server.health())["in_flight"] == 1
        assert (await server.run())["reward"] == 1.0
        assert not waits.done()
        hangs.let_go()
        assert (await waits)["reward"] == 1.0


async def test_a_volume_that_hangs_is_not_a_task_that_is_missing(tasks: Path, hangs: Lease) -> None:
    async with stage(tasks, replies(SOLVES), read_s=SHORT) as server:
        answer = await server.run(instance_id="hangs")
        missing = await server.run(instance_id="no-such-task")
        assert (await server.health())["in_flight"] == 0
        hangs.let_go()
        await eventually(lambda: not list(server.settings.trials_dir.iterdir()))
    assert (answer["exit_status"], answer["infra_failure"]) == ("ServerError", True)
    assert "task hangs could not be read within 0.3 s: its volume hangs" in answer["message"]
    assert missing["exit_status"] == "TaskNotFound"


async def test_a_flush_ends_a_trial_whose_task_cannot_be_read(tasks: Path, hangs: Lease) -> None:
    async with stage(tasks, replies(SOLVES)) as server:
        waits = asyncio.ensure_future(server.run(instance_id="hangs"))
        await eventually(lambda: live(server) == [Phase.STARTING])
        body = {"session_server_instance_id": "instance-a"}
        told = (await server.client.post(f"{server.url}/flush", json=body)).json()
        hangs.let_go()
        assert ((await waits)["exit_status"], told["cancelled"], told["pending"]) == ("Aborted", 1, 0)


async def test_a_task_that_is_missing_keeps_no_place_in_the_queue(tasks: Path, hangs: Lease) -> None:
    async with stage(tasks, replies(SOLVES), max_concurrent=1) as server:
        holds = asyncio.ensure_future(server.run(instance_id="hangs"))
        await eventually(lambda: live(server) == [Phase.STARTING])
        assert (await server.run(instance_id="no-such-task"))["exit_status"] == "TaskNotFound"
        assert (await server.health())["queued"] == 0
        hangs.let_go()
        assert (await holds)["reward"] == 1.0
        assert (await server.run())["reward"] == 1.0
