"""A way into a pod that does not open: nothing that was cut off behind it is anybody's but the cluster's."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from pathlib import Path
from typing import Any, cast, override

import aiohttp
import pytest

from harborrl_agent_server.errors import SandboxTransportError
from harborrl_agent_server.outcomes import Evidence, judge
from harborrl_agent_server.sandboxes.kubernetes import KubernetesSandbox
from support.sandbox_api import SandboxApi, Socket, provided, sandbox_of


class SlowApi(SandboxApi):
    """Its exec connections open when `way` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.way = asyncio.Event()
        self.way.set()
        self.asked = asyncio.Event()
        self.is_endless = False
        self.running = asyncio.Event()

    @override
    async def exec_socket(
        self, namespace: str, pod: str, argv: Sequence[str], *, container: str, stdin: bool, protocol: str
    ) -> aiohttp.ClientWebSocketResponse:
        self.asked.set()
        await self.way.wait()
        if self.is_endless:
            self.is_endless = False  # what ends the command may come in
            return cast("aiohttp.ClientWebSocketResponse", Endless(self.running))
        return await super().exec_socket(namespace, pod, argv, container=container, stdin=stdin, protocol=protocol)


@pytest.fixture
def api() -> SlowApi:
    return SlowApi()


@pytest.fixture
async def sandbox(api: SlowApi, tmp_path: Path) -> AsyncIterator[KubernetesSandbox]:
    async with provided(api, tmp_path) as provider:
        sandbox = sandbox_of(provider, tmp_path)
        await sandbox.start(force_build=False)
        yield sandbox
        await sandbox.stop(delete=True)


async def cut_off(api: SlowApi, command: Coroutine[Any, Any, Any], once: asyncio.Event) -> None:
    """As Harbor does when the time of what waits for the command is over; the way is open for what ends the command."""
    running = asyncio.ensure_future(command)
    await once.wait()
    api.asked.clear()
    running.cancel()
    await api.asked.wait()
    api.way.set()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_verifier_whose_connection_never_opened_is_not_scored(api: SlowApi, sandbox: KubernetesSandbox) -> None:
    api.way.clear()
    api.asked.clear()
    await cut_off(api, sandbox.exec("bash /tests/test.sh"), api.asked)
    fault = type(sandbox.scope.fault).__name__
    assert fault == SandboxTransportError.__name__
    timed_out = Evidence(exception="VerifierTimeoutError", agent_started=True, verifier_started=True, fault=fault)
    assert judge(timed_out).infra_failure


async def test_a_command_that_is_cut_off_while_it_runs_is_no_fault_of_the_way(
    api: SlowApi, sandbox: KubernetesSandbox
) -> None:
    api.is_endless = True
    await cut_off(api, sandbox.exec("sleep infinity"), api.running)
    assert sandbox.scope.fault is None


class Endless(Socket):
    """A command that says nothing and does not end."""

    def __init__(self, running: asyncio.Event) -> None:
        super().__init__((0, ""))
        self._running = running

    @override
    async def receive(self) -> aiohttp.WSMessage:
        self._running.set()
        return await asyncio.Future()
