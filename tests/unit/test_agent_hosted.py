"""A sandbox of somebody else's class: our guarantees hold round whatever it does."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import override

import pytest
from harbor.models.task.config import NetworkPolicy

from harborrl_agent_server.errors import SandboxLostError, SandboxStartError, StartupError
from harborrl_agent_server.sandboxes import hosting as sandbox_hosting
from harborrl_agent_server.sandboxes.base import ShellSandbox
from harborrl_agent_server.sandboxes.hosted_provider import HostedProvider
from harborrl_agent_server.sandboxes.hosting import Hosting
from harborrl_agent_server.settings import Settings
from support import foreign_sandboxes
from support.agent_http import replies
from support.agent_server import BUDGETS, MARKS, stage
from support.foreign_sandboxes import DeafAtStart, Dies, Foreign, NeverTimesOut, StopFails, TimesOutAtStart
from support.sandbox_suite import SandboxSuite, built, started

pytestmark = MARKS


def settings(folder: Path, name: str, **changes: object) -> Settings:
    own = Settings(
        tasks_dir=folder,
        trials_dir=folder / "trials",
        sandbox=f"{foreign_sandboxes.__name__}:{name}",
        sandbox_config={"flavour": "plain"},
        budgets=BUDGETS,
    )
    return replace(own, **changes)  # type: ignore[arg-type] # of Settings


async def opened(folder: Path, foreign: type = Foreign, **changes: object) -> HostedProvider:
    provider = chosen(folder, foreign, **changes)
    await provider.open()
    return provider


def chosen(folder: Path, foreign: type = Foreign, **changes: object) -> HostedProvider:
    return HostedProvider.from_settings(settings(folder, foreign.__name__, **changes))


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[ShellSandbox]:
    async with started(await opened(tmp_path), tmp_path) as sandbox:
        yield sandbox


def hosting(sandbox: ShellSandbox) -> Hosting:
    return sandbox._hosting  # type: ignore[attr-defined, no-any-return] # of Hosted


class TestHostedSandbox(SandboxSuite):
    @override
    def agent_ended(self, sandbox: ShellSandbox, folders: list[str]) -> None:
        hosting(sandbox).agent_ended(folders)

    @override
    async def quiesce(self, sandbox: ShellSandbox) -> None:
        await hosting(sandbox).quiesce()

    async def test_the_class_gets_what_the_command_line_says(self, sandbox: ShellSandbox) -> None:
        assert isinstance(sandbox, Foreign)
        assert sandbox.asked_for == "plain"

    async def test_a_command_that_ends_everything_ends_with_a_code(self, sandbox: ShellSandbox) -> None:
        assert (await sandbox.exec("kill -9 -1")).return_code == 137
        assert (await sandbox.exec("echo alive")).stdout == "alive\n"


async def test_a_class_without_time_outs_gets_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox_hosting, "LATE_SECONDS", 0.5)
    async with started(await opened(tmp_path, NeverTimesOut), tmp_path) as sandbox:
        assert (await sandbox.exec("sleep 7660", timeout_sec=1)).return_code == 124
        assert await SandboxSuite().running(sandbox, "sleep 766") == 0


async def test_a_success_of_a_sandbox_that_is_gone_is_believed_by_nobody(tmp_path: Path) -> None:
    async with started(await opened(tmp_path, Dies), tmp_path) as sandbox:
        with pytest.raises(SandboxLostError, match="answers no more"):
            await sandbox.exec("die-now")
        assert isinstance(hosting(sandbox)._scope.fault, SandboxLostError)


async def test_a_time_out_of_the_class_at_its_start_is_no_time_out_of_ours(tmp_path: Path) -> None:
    sandbox = built(await opened(tmp_path, TimesOutAtStart), tmp_path, NetworkPolicy())
    with pytest.raises(SandboxStartError, match="TimeoutError: the cloud is slow today"):
        await sandbox.start(force_build=False)


async def test_a_start_that_hangs_and_heeds_nobody_is_left_behind(tmp_path: Path) -> None:
    DeafAtStart.let_go = asyncio.Event()
    short = replace(BUDGETS, environment_start_s=0.2)
    sandbox = built(await opened(tmp_path, DeafAtStart, budgets=short), tmp_path, NetworkPolicy())
    with pytest.raises(SandboxStartError, match="no answer from the sandbox's class"):
        await sandbox.start(force_build=False)
    DeafAtStart.let_go.set()


async def test_a_sandbox_that_its_class_cannot_stop_is_counted_and_tried_again(tmp_path: Path) -> None:
    async with started(await opened(tmp_path, StopFails), tmp_path) as sandbox:
        await sandbox.stop(delete=True)
        assert hosting(sandbox).left
        assert sandbox.session_id in Foreign.living
        type(sandbox).fails = False  # type: ignore[attr-defined] # of StopFails
        await hosting(sandbox).destroy()
        assert not hosting(sandbox).left
        assert Foreign.living == set()


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("no.such:Thing", r"cannot be imported \(ModuleNotFoundError"),
        (f"{foreign_sandboxes.__name__}:Nowhere", r"cannot be imported \(AttributeError"),
        (f"{foreign_sandboxes.__name__}:NOT_A_CLASS", "no subclass of harbor.environments.base.BaseEnvironment"),
        (f"{foreign_sandboxes.__name__}:HalfWritten", "lacks .*exec.*start"),
        (f"{foreign_sandboxes.__name__}:OwnNames", "upload_dir takes no source_dir, as Harbor's own does"),
        (f"{foreign_sandboxes.__name__}:Unprepared", r"CLOUD_TOKEN is not set. Set it\.$"),
    ],
)
async def test_a_class_that_cannot_serve_is_refused_in_one_line(tmp_path: Path, path: str, said: str) -> None:
    with pytest.raises(StartupError, match=said) as refused:
        await HostedProvider.from_settings(replace(settings(tmp_path, "Foreign"), sandbox=path)).open()
    assert "\n" not in str(refused.value)


async def test_a_trial_earns_what_its_verifier_says(tasks: Path) -> None:
    async with stage(
        tasks, replies("```sh\necho hello >greeting.txt\n```", "TASK_DONE"), provider=chosen(tasks)
    ) as server:
        answer = await server.run()
        written = (server.settings.trials_dir / answer["trial_name"] / "config.json").read_text()
    assert (answer["reward"], answer["exit_status"]) == (1.0, "Submitted"), answer
    assert "plain" not in written
    assert Foreign.living == set()


async def test_a_stop_that_fails_costs_no_reward(tasks: Path) -> None:
    provider = chosen(tasks, StopFails)
    async with stage(tasks, replies("```sh\necho hello >greeting.txt\n```", "TASK_DONE"), provider=provider) as server:
        answer = await server.run()
        assert (await server.health())["status"] == "degraded"
        StopFails.fails = False
        await server.runs.reaper.reap()
        assert (await server.health())["status"] != "degraded"
        StopFails.fails = True
    assert (answer["reward"], answer["exit_status"]) == (1.0, "Submitted"), answer
    assert Foreign.living == set()


async def test_a_sandbox_that_dies_is_no_zero(tasks: Path) -> None:
    async with stage(tasks, replies("```sh\ndie-now\n```", "TASK_DONE"), provider=chosen(tasks, Dies)) as server:
        answer = await server.run()
    assert (answer["exit_status"], answer["infra_failure"]) == ("SandboxLost", True), answer


async def test_a_download_that_fails_in_a_living_sandbox_is_the_verifiers_trouble(tasks: Path) -> None:
    provider = chosen(tasks, foreign_sandboxes.DownloadFails)
    async with stage(tasks, replies("TASK_DONE"), provider=provider) as server:
        answer = await server.run()
    assert (answer["exit_status"], answer["reward"]) == ("VerifierError", 0.0), answer


async def test_a_mistake_in_the_class_is_no_zero(tasks: Path) -> None:
    provider = chosen(tasks, foreign_sandboxes.Mistaken)
    async with stage(tasks, replies("TASK_DONE"), provider=provider) as server:
        answer = await server.run()
    assert (answer["exit_status"], answer["infra_failure"]) == ("SandboxLost", True), answer
    assert "AttributeError: 'str' object has no attribute 'no_such_thing'" in answer["message"]
