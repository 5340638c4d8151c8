"""Docker sandboxes on a real daemon: the suite of all sandboxes, and what is their own."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from harbor.models.task.config import NetworkMode, NetworkPolicy

from harborrl_agent_server.errors import (
    SandboxLostError,
    SandboxResourceError,
    SandboxStartError,
    SandboxUnusableError,
)
from harborrl_agent_server.sandboxes.base import ShellSandbox
from harborrl_agent_server.sandboxes.docker import DockerSandbox
from support.docker import IMAGE, containers, docker, obstacle, provider, state, things_of
from support.sandbox_suite import SandboxSuite, built, started

pytestmark = pytest.mark.skipif(bool(obstacle()), reason=obstacle() or "a daemon is there")

NO_NETWORK = NetworkPolicy(network_mode=NetworkMode.NO_NETWORK)


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[ShellSandbox]:
    async with started(provider(tmp_path), tmp_path) as sandbox:
        yield sandbox


def named(sandbox: ShellSandbox) -> str:
    assert isinstance(sandbox, DockerSandbox)
    return sandbox.project


class TestDockerSandbox(SandboxSuite):
    async def test_what_the_task_and_the_server_allow_bounds_the_container(self, tmp_path: Path) -> None:
        config = {"pidsLimit": 99, "defaults": {"limits": {"cpu": "500m"}}}
        async with started(provider(tmp_path, config=config), tmp_path, memory_mb=64) as sandbox:
            host = state(f"{named(sandbox)}-main-1")["HostConfig"]
        assert (host["Memory"], host["MemorySwap"], host["PidsLimit"]) == (64 << 20, 64 << 20, 99)
        assert host["NanoCpus"] == 500_000_000

    async def test_the_container_and_its_network_say_whose_they_are(self, sandbox: ShellSandbox) -> None:
        assert isinstance(sandbox, DockerSandbox)
        wanted = sandbox.provider.labels(sandbox.scope.run_id)
        assert wanted.items() <= state(f"{sandbox.project}-main-1")["Config"]["Labels"].items()
        assert wanted.items() <= state(f"{sandbox.project}_default")["Labels"].items()

    async def test_nothing_of_this_machine_is_mounted(self, sandbox: ShellSandbox) -> None:
        assert state(f"{named(sandbox)}-main-1")["Mounts"] == []

    async def test_a_task_without_network_has_the_loopback_alone(self, tmp_path: Path) -> None:
        async with started(provider(tmp_path), tmp_path, NO_NETWORK) as sandbox:
            links = (await sandbox.exec("ls /sys/class/net")).stdout
            assert docker("network", "ls", "--quiet", "--filter", f"name={named(sandbox)}") == ""
        assert links == "lo\n"

    async def test_a_container_that_somebody_removes_is_lost(self, sandbox: ShellSandbox) -> None:
        command = asyncio.ensure_future(sandbox.exec("touch /tmp/begun; sleep 600"))
        async with asyncio.timeout(20):
            while (await sandbox.exec("test -e /tmp/begun")).return_code != 0:
                pass
        docker("rm", "--force", f"{named(sandbox)}-main-1")
        with pytest.raises(SandboxLostError, match="was removed by somebody"):
            await command
        assert isinstance(sandbox.scope.fault, SandboxLostError)

    async def test_a_container_that_its_memory_limit_ends_is_the_policys_doing(self, tmp_path: Path) -> None:
        async with started(provider(tmp_path), tmp_path, memory_mb=32) as sandbox:
            with pytest.raises(SandboxResourceError, match="out of memory"):
                await sandbox.exec(
                    "echo 1000 >/proc/1/oom_score_adj; echo -999 >/proc/$$/oom_score_adj; tail /dev/zero"
                )

    async def test_a_command_that_its_memory_limit_ends_leaves_the_sandbox(self, tmp_path: Path) -> None:
        async with started(provider(tmp_path), tmp_path, memory_mb=32) as sandbox:
            assert (await sandbox.exec("tail /dev/zero")).return_code == 137
            assert (await sandbox.exec("echo alive")).stdout == "alive\n"

    async def test_a_command_that_ends_everything_ends_with_a_code(self, sandbox: ShellSandbox) -> None:
        assert (await sandbox.exec("kill -9 -1")).return_code == 137
        assert (await sandbox.exec("echo alive")).stdout == "alive\n"

    async def test_what_a_command_says_in_the_clients_words_is_its_own(self, sandbox: ShellSandbox) -> None:
        result = await sandbox.exec("echo 'Error response from daemon: No such container: x' >&2; exit 1")
        assert (result.return_code, sandbox.scope.fault) == (1, None)

    async def test_a_sandbox_that_its_agent_emptied_starts_nothing(self, sandbox: ShellSandbox) -> None:
        await sandbox.exec("rm -rf /bin /usr/bin")
        with pytest.raises(SandboxUnusableError):
            await sandbox.exec("true")

    async def test_an_image_that_is_nowhere_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(SandboxStartError, match=r"ImagePullFailed: localhost:1/nowhere/nothing:7: .*docker load"):
            async with started(provider(tmp_path), tmp_path, docker_image="localhost:1/nowhere/nothing:7"):
                pass


async def test_a_start_that_is_cut_off_leaves_nothing(tmp_path: Path) -> None:
    sandbox = built(provider(tmp_path), tmp_path, NetworkPolicy())
    start = asyncio.ensure_future(sandbox.start(force_build=False))
    async with asyncio.timeout(20):
        while not things_of(named(sandbox)):
            await asyncio.wait({start}, timeout=0.05)
    start.cancel()
    await asyncio.gather(start, return_exceptions=True)
    await sandbox.stop(delete=True)
    assert not sandbox.left
    assert things_of(named(sandbox)) == []


async def test_a_server_that_starts_again_removes_what_its_last_life_left_and_nothing_else(tmp_path: Path) -> None:
    before, neighbour = provider(tmp_path, port=1), provider(tmp_path, port=2)
    async with started(before, tmp_path) as orphan, started(neighbour, tmp_path) as other:
        after = provider(tmp_path, port=1)
        await after.open()
        assert things_of(named(orphan)) == []
        assert len(containers(named(other))) == 1
        await after.close()
        assert len(containers(named(other))) == 1


async def test_what_a_task_starts_beside_the_sandbox_lives_through_the_agent_and_goes_with_it(tmp_path: Path) -> None:
    folder = tmp_path / "task" / "environment"
    folder.mkdir(parents=True)
    (folder / "docker-compose.yaml").write_text(
        "services:\n"
        '  main: {command: ["sh", "-c", "sleep 8800 & exec sleep 8801"]}\n'
        f'  store: {{image: "{IMAGE}", command: ["sleep", "8802"]}}\n'
    )
    async with started(provider(tmp_path), tmp_path, docker_image=IMAGE) as sandbox:
        assert len(containers(named(sandbox))) == 2
        await sandbox.exec("mkdir /tests; (setsid sleep 8803 >/dev/null 2>&1 &)")
        await sandbox.quiesce()
        suite = TestDockerSandbox()
        assert [await suite.running(sandbox, f"sleep 880{number}") for number in (0, 1, 3)] == [1, 1, 0]
        assert (await sandbox.exec("test -e /tests")).return_code == 1
    assert things_of(named(sandbox)) == []
