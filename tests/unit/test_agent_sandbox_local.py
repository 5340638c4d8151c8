"""The namespace sandbox under the suite of all sandboxes, and what is its own."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from harbor.models.task.config import NetworkMode, NetworkPolicy

from harborrl_agent_server.errors import SandboxLostError, SandboxUnusableError
from harborrl_agent_server.sandboxes import commands
from harborrl_agent_server.sandboxes.base import ShellSandbox
from harborrl_agent_server.sandboxes.local import LocalProvider, LocalSandbox, sweep
from harborrl_agent_server.sandboxes.spawner import NICENESS, SESSION_NICENESS
from support.agent_server import MARKS
from support.sandbox_suite import SandboxSuite, started

pytestmark = MARKS


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[ShellSandbox]:
    provider = LocalProvider()
    async with started(provider, tmp_path) as sandbox:
        yield sandbox
    await provider.close()


class TestLocalSandbox(SandboxSuite):
    async def test_what_it_writes_never_reaches_this_machine(self, sandbox: ShellSandbox) -> None:
        await sandbox.exec("echo x >/harborrl-leak; echo x >/etc/harborrl-leak; echo x >/dev/harborrl-leak")
        assert not os.path.exists("/dev/harborrl-leak")  # noqa: ASYNC240, PTH110 - a look at this machine
        assert not os.path.exists("/harborrl-leak")  # noqa: ASYNC240, PTH110 - a look at this machine
        assert not os.path.exists("/etc/harborrl-leak")  # noqa: ASYNC240, PTH110 - same

    async def test_a_background_child_that_keeps_the_output_open_does_not_hold_its_parent(
        self, sandbox: ShellSandbox
    ) -> None:
        result = await sandbox.exec("sleep 30 & echo done", timeout_sec=20)
        assert (result.return_code, result.stdout) == (0, "done\n")

    async def test_nothing_runs_in_a_sandbox_that_died(self, sandbox: ShellSandbox) -> None:
        assert isinstance(sandbox, LocalSandbox)
        os.kill(sandbox._first_pid, 9)
        await sandbox.holder_ended()
        with pytest.raises(SandboxLostError):
            await sandbox.exec("true")
        assert isinstance(sandbox.scope.fault, SandboxLostError)

    async def test_an_agent_that_kills_all_it_can_reach_has_failed_a_command(self, sandbox: ShellSandbox) -> None:
        assert (await sandbox.exec("kill -9 -1")).return_code == 137
        assert (await sandbox.exec("echo on")).stdout == "on\n"

    async def test_an_agent_that_ends_its_sandbox_has_done_it(self, sandbox: ShellSandbox) -> None:
        with pytest.raises(SandboxUnusableError, match="by its own processes"):
            await sandbox.exec("kill 1; sleep 30")
        with pytest.raises(SandboxUnusableError, match="by its own processes"):
            await sandbox.exec("true")

    async def test_a_busy_one_leaves_the_server_its_turns(self, sandbox: ShellSandbox) -> None:
        """Its first process and commands, by themselves and by their sessions."""
        process = min(19, os.getpriority(os.PRIO_PROCESS, 0) + NICENESS)
        for pid in ("1", "self"):
            said = await sandbox.exec(f"cut -d' ' -f19 /proc/{pid}/stat; cut -d' ' -f3 /proc/{pid}/autogroup")
            assert (said.stdout or "").split() in ([f"{process}", f"{SESSION_NICENESS}"], [f"{process}"])

    @pytest.mark.parametrize("user", ["nobody", "65534"])
    async def test_a_command_of_a_tasks_user_that_outlives_its_time_is_ended(
        self, sandbox: ShellSandbox, user: str
    ) -> None:
        assert (await sandbox.exec("sleep 77; true", timeout_sec=2, user=user)).return_code == 124
        # By its first word: the shells around a command that was ended have it among their arguments until they end.
        assert (await sandbox.exec("ps -e -o args= | grep '^sleep 77'")).stdout == ""

    async def test_a_command_that_was_cut_before_it_began_never_runs(self, sandbox: ShellSandbox) -> None:
        await sandbox._kill("/cut.pid")
        words = commands.supervised(["touch", "/ran"], "/cut.pid")
        assert await sandbox.stream(words, stdin=None, stdout=bytearray().extend, stderr=bytearray().extend) == 137
        assert (await sandbox.exec("ls -d /ran /cut*")).stdout == ""

    async def test_its_devices_are_its_own_and_no_disk_is_among_them(self, sandbox: ShellSandbox) -> None:
        said = await sandbox.exec(
            "rm -rf /dev/null /dev/zero; find /dev -type b; [ -c /dev/urandom ] && echo out >/dev/stdout; "
            "head -c1 /dev/urandom | wc -c; ls /dev/ptmx"
        )
        assert (said.stdout or "").split() == ["out", "1", "/dev/ptmx"]
        assert os.path.exists("/dev/null")  # noqa: ASYNC240, PTH110 - a look at this machine

    async def test_no_folder_of_it_is_left_where_nobody_could_remove_it(self, sandbox: ShellSandbox) -> None:
        assert isinstance(sandbox, LocalSandbox)
        assert sandbox._base is not None
        assert not sandbox._base.exists()

    async def test_a_task_without_network_has_none(self, tmp_path: Path) -> None:
        provider, none = LocalProvider(), NetworkPolicy(network_mode=NetworkMode.NO_NETWORK)
        async with started(provider, tmp_path / "closed", none) as closed:
            closed_links = (await closed.exec("ls /proc/sys/net/ipv4/conf")).stdout or ""
        await provider.close()
        assert set(closed_links.split()) <= {"all", "default", "lo"}


def test_folders_of_servers_that_were_killed_are_swept_and_nothing_else(tmp_path: Path) -> None:
    for name in ("harborrl-sandbox-old", "harborrl-sandbox-new", "harborrl-sandbox-full", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "harborrl-sandbox-full" / "file").touch()
    old = tmp_path.stat().st_mtime - 3600
    for name in ("harborrl-sandbox-old", "harborrl-sandbox-full", "other"):
        os.utime(tmp_path / name, (old, old))
    sweep(tmp_path, old + 3600)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "harborrl-sandbox-full",
        "harborrl-sandbox-new",
        "other",
    ]
