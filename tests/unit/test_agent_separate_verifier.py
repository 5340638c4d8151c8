"""Tasks whose verifier has a sandbox of its own, in which the policy never was."""

import asyncio
from pathlib import Path
from typing import Any, override

import pytest

from harborrl_agent_server.errors import SandboxStartError
from harborrl_agent_server.phases import Phase
from harborrl_agent_server.sandboxes.local import LocalSandbox
from support.agent_http import eventually, replies
from support.agent_server import MARKS, CustomProvider, stage
from support.agent_tasks import write_task

pytestmark = MARKS

SEPARATE = '[verifier]\nenvironment_mode = "separate"'

VERIFY = """if [ -e /app/planted ]; then echo 0; elif [ "$(cat /logs/artifacts/greeting.txt)" = hello ]; then echo 1
else echo 0.5; fi >/logs/verifier/reward.txt"""

ACT = "```sh\ntouch /app/planted; echo hello >/logs/artifacts/greeting.txt\n```"


class Told(LocalSandbox):
    """Says when each sandbox was there and when it had gone."""

    events: list[tuple[str, str]] = []  # noqa: RUF012 - of the class on purpose; each test begins with none
    _is_up = False

    @override
    async def boot(self) -> None:
        await super().boot()
        self._is_up = True
        Told.events.append(("up", self.session_id))

    @override
    async def destroy(self) -> None:
        await super().destroy()
        if self._is_up:
            self._is_up = False
            Told.events.append(("gone", self.session_id))


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    Told.events = []
    root = tmp_path / "tasks"
    write_task(root, "apart", verify=VERIFY, toml=SEPARATE)
    write_task(root, "apart-and-slow", verify="sleep 4329", toml=SEPARATE)
    return root


def provider() -> CustomProvider:
    return CustomProvider(f"{Told.__module__}:{Told.__qualname__}")


async def test_what_the_agent_published_is_graded_where_it_never_was(tasks: Path) -> None:
    async with stage(tasks, replies(ACT, "TASK_DONE"), provider=provider()) as server:
        answer = await server.run(instance_id="apart")
    assert (answer["exit_status"], answer["reward"], answer["warnings"]) == ("Submitted", 1.0, [])
    (first, agents), (second, same), (third, verifiers), (fourth, last) = Told.events
    assert [first, second, third, fourth] == ["up", "gone", "up", "gone"]
    assert (agents, verifiers) == (same, last)
    assert agents != verifiers


async def test_a_flush_while_it_grades_leaves_neither_sandbox(tasks: Path) -> None:
    async with stage(tasks, replies(ACT, "TASK_DONE"), provider=provider()) as server:
        run = asyncio.ensure_future(server.run(instance_id="apart-and-slow"))
        await eventually(lambda: [what for what, _ in Told.events] == ["up", "gone", "up"])
        await server.client.post(f"{server.url}/flush", json={"session_server_instance_id": "instance-a"})
        answer: dict[str, Any] = await run
        assert (await server.health())["status"] == "ok"
    assert (answer["exit_status"], answer["eval_report"]) == ("Aborted", {})
    assert [what for what, _ in Told.events] == ["up", "gone", "up", "gone"]


class StopWaits(Told):
    """Harbor waits for its stop, and shields it."""

    go: asyncio.Event

    @override
    async def stop(self, delete: bool) -> None:
        await StopWaits.go.wait()
        await super().stop(delete)


async def test_a_flush_that_harbor_swallows_while_it_stops_the_agents_sandbox_starts_no_second_one(tasks: Path) -> None:
    StopWaits.go = asyncio.Event()
    waits = CustomProvider(f"{StopWaits.__module__}:{StopWaits.__qualname__}")
    async with stage(tasks, replies(ACT, "TASK_DONE"), provider=waits) as server:
        run = asyncio.ensure_future(server.run(instance_id="apart-and-slow"))
        await eventually(lambda: [one.phase for one in server.runs.snapshot().live] == [Phase.STOPPING])
        flushed = await server.client.post(f"{server.url}/flush", json={"session_server_instance_id": "instance-a"})
        answer: dict[str, Any] = await run
        StopWaits.go.set()
        (seen,) = server.runs.snapshot().finished
        assert (await server.health())["status"] == "ok"
    assert (flushed.json()["cancelled"], flushed.json()["pending"]) == (1, 0)
    assert (answer["exit_status"], answer["eval_report"], seen.phase) == ("Aborted", {}, Phase.DONE)
    assert [what for what, _ in Told.events] == ["up", "gone"]


class OnlyTheFirstStarts(Told):
    @override
    async def boot(self) -> None:
        if Told.events:
            raise SandboxStartError("QuotaExceeded", "no room for the verifier")
        await super().boot()


async def test_a_verifiers_sandbox_that_never_starts_is_no_number(tasks: Path) -> None:
    none_left = CustomProvider(f"{OnlyTheFirstStarts.__module__}:{OnlyTheFirstStarts.__qualname__}")
    async with stage(tasks, replies(ACT, "TASK_DONE"), provider=none_left) as server:
        answer = await server.run(instance_id="apart")
    assert (answer["exit_status"], answer["infra_failure"], answer["eval_report"]) == ("SandboxUnavailable", True, {})
    assert answer["message"].startswith("the verifier's own sandbox did not start: ")
    assert "no room for the verifier" in answer["message"]


class OnlyTheFirstIsMade(Told):
    @override
    def _validate_definition(self) -> None:
        if Told.events:
            raise RuntimeError("no such definition")


class TheSecondFailsAsNobodyForesaw(Told):
    @override
    async def prepare(self) -> None:
        if len(Told.events) > 1:
            raise RuntimeError("upload of environment/ failed")
        await super().prepare()


@pytest.mark.parametrize("sandbox", [OnlyTheFirstIsMade, TheSecondFailsAsNobodyForesaw])
async def test_no_way_in_which_a_verifiers_sandbox_does_not_start_is_a_zero_of_the_policys(
    tasks: Path, sandbox: type[Told]
) -> None:
    provider = CustomProvider(f"{sandbox.__module__}:{sandbox.__qualname__}")
    async with stage(tasks, replies(ACT, "TASK_DONE"), provider=provider) as server:
        answer = await server.run(instance_id="apart")
    assert (answer["exit_status"], answer["infra_failure"], answer["eval_report"]) == ("SandboxUnavailable", True, {})
    assert "no such definition" in answer["message"] or "upload of environment/" in answer["message"]
