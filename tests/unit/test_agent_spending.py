"""A verifier's own sandbox starts within the trial's budgets, however much of them is spent."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import override

import pytest
from harbor.models.task.config import NetworkPolicy

from harborrl_agent_server.errors import SandboxStartError
from harborrl_agent_server.sandboxes.local import LocalProvider, LocalSandbox
from harborrl_agent_server.scope import TrialScope
from harborrl_agent_server.settings import Budgets
from harborrl_agent_server.spending import SAY_SECONDS, Spending
from support.agent_server import MARKS, CustomProvider
from support.sandbox_suite import built

pytestmark = MARKS

BUDGETS = Budgets(environment_start_s=600, agent_setup_s=360, agent_timeout_s=5400, verifier_s=600, cleanup_s=60)


@pytest.mark.parametrize("spent", [0.0, 100.0, 5500.0, 6000.0, 6359.0, 6360.0, 9000.0])
def test_a_trial_with_two_sandboxes_keeps_to_the_sum_of_its_budgets(spent: float) -> None:
    left = Spending(BUDGETS, clock=lambda: 50.0 + spent, began=50.0).start_s(is_first=False)
    ends = spent + max(left, 0) + SAY_SECONDS + BUDGETS.verifier_s + BUDGETS.cleanup_s
    assert left <= BUDGETS.environment_start_s
    assert ends <= BUDGETS.total() or left <= 0


def test_an_agent_that_took_all_its_time_leaves_what_start_and_setup_did_not_need() -> None:
    spending = Spending(BUDGETS, clock=lambda: 10.0 + 5400.0, began=0.0)
    assert spending.start_s(is_first=False) == BUDGETS.environment_start_s
    assert replace(spending, clock=lambda: 500.0 + 5400.0).start_s(is_first=False) == 460 - SAY_SECONDS


def test_the_first_sandbox_has_its_whole_budget() -> None:
    assert Spending(BUDGETS, clock=lambda: 5000.0, began=0.0).start_s(is_first=True) == BUDGETS.environment_start_s


class Hangs(LocalSandbox):
    asked = False

    @override
    async def boot(self) -> None:
        self.asked = True
        await asyncio.Event().wait()


class Agents:
    """The sandbox of the trial's agent: only its place matters."""


def verifiers_own(folder: Path, left_s: float) -> Hangs:
    sandbox = built(CustomProvider(f"{Hangs.__module__}:{Hangs.__qualname__}"), folder, NetworkPolicy())
    assert isinstance(sandbox, Hangs)
    scope: TrialScope = sandbox.scope
    scope.sandboxes.insert(0, Agents())  # type: ignore[arg-type] # same
    spent = BUDGETS.total() - BUDGETS.verifier_s - BUDGETS.cleanup_s - SAY_SECONDS - left_s
    scope.spending = Spending(BUDGETS, clock=lambda: spent, began=0.0)
    return sandbox


async def test_a_start_that_hangs_ends_where_it_would_take_the_verifiers_time(tmp_path: Path) -> None:
    sandbox = verifiers_own(tmp_path, left_s=0.1)
    with pytest.raises(SandboxStartError, match=r"NotInTime: not ready within 0 s; raise .*environmentStartSeconds"):
        await sandbox.start(force_build=False)
    assert sandbox.asked
    assert isinstance(sandbox.scope.fault, SandboxStartError)
    assert not sandbox.scope.ready


async def test_nothing_is_started_when_the_agent_left_no_time(tmp_path: Path) -> None:
    sandbox = verifiers_own(tmp_path, left_s=0)
    with pytest.raises(SandboxStartError, match="NoTimeLeft"):
        await sandbox.start(force_build=False)
    assert not sandbox.asked


async def test_a_sandbox_that_started_is_known_as_ready(tmp_path: Path) -> None:
    sandbox = built(LocalProvider(), tmp_path, NetworkPolicy())
    try:
        await sandbox.start(force_build=False)
        assert sandbox.scope.ready == {sandbox}
    finally:
        await sandbox.stop(delete=True)
