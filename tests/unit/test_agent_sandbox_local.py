"""The namespace sandbox under the suite of all sandboxes, and what is its own."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from harbor.models.task.config import NetworkMode, NetworkPolicy

from harborrl_agent_server.errors import SandboxLostError
from harborrl_agent_server.sandboxes.base import ShellSandbox
from harborrl_agent_server.sandboxes.local import LocalProvider, LocalSandbox
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
        await sandbox.exec("echo x >/harborrl-leak; echo x >/etc/harborrl-leak")
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

    async def test_a_task_without_network_has_none(self, tmp_path: Path) -> None:
        provider, none = LocalProvider(), NetworkPolicy(network_mode=NetworkMode.NO_NETWORK)
        async with started(provider, tmp_path / "closed", none) as closed:
            closed_links = (await closed.exec("ls /proc/sys/net/ipv4/conf")).stdout or ""
        await provider.close()
        assert set(closed_links.split()) <= {"all", "default", "lo"}
