"""A pod in which nothing runs does not stay, where the job says so."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harborrl_agent_server.errors import SandboxLostError
from harborrl_agent_server.sandboxes.idleness import Idleness
from support.agent_http import eventually
from support.sandbox_api import SandboxApi, provided, sandbox_of


class Clock:
    """Timers that a test lets go off."""

    def __init__(self) -> None:
        self.set: list[float] = []
        self.due: Callable[[], Any] | None = None

    def __call__(self, seconds: float, call: Callable[[], Any]) -> "Clock":
        self.set.append(seconds)
        self.due = call
        return self

    def cancel(self) -> None:
        self.due = None


async def _nothing() -> None:
    pass


def test_time_counts_from_the_end_of_the_last_command_and_not_while_one_runs() -> None:
    clock = Clock()
    idle = Idleness(60, _nothing, clock)
    idle.begin()
    with idle.busy():
        assert clock.due is None
        with idle.busy():
            pass
        assert clock.due is None
    assert clock.due is not None
    assert clock.set == [60, 60]


@pytest.mark.parametrize("limit_s", [None, 60.0])
def test_a_sandbox_without_a_limit_or_one_that_goes_is_never_idle(limit_s: float | None) -> None:
    clock = Clock()
    idle = Idleness(limit_s, _nothing, clock)
    if limit_s is not None:
        idle.begin()
        idle.close()
    with idle.busy():
        pass
    idle.begin()
    assert clock.due is None


async def test_an_idle_pod_is_removed_and_its_trial_is_told_why(tmp_path: Path) -> None:
    api = SandboxApi()
    async with provided(api, tmp_path, {"idleTimeoutSeconds": 0.05}) as provider:
        sandbox = sandbox_of(provider, tmp_path)
        await sandbox.start(force_build=False)
        await eventually(lambda: sandbox.scope.fault is not None)
        assert isinstance(sandbox.scope.fault, SandboxLostError)
        assert "raise agentServer.sandbox.idleTimeoutSeconds" in str(sandbox.scope.fault)
        await eventually(lambda: not any("/pods/" in path for path in api.objects))
        with pytest.raises(SandboxLostError):
            await sandbox.exec("true")
