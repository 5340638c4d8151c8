"""An agent of one's own, named on the command line: under the server's rules, and never named by a request."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from harborrl_agent_server.agents.registry import prepare, tools_of
from harborrl_agent_server.contract import RunRequest
from harborrl_agent_server.errors import StartupError
from harborrl_agent_server.gateway_serve import needed
from harborrl_agent_server.settings import AGENTS, Settings, settings_from
from support import own_agents
from support.agent_http import completion, replies
from support.agent_server import MARKS, Stage, stage
from support.agent_tasks import GREETING, write_task

pytestmark = MARKS

PLACE = f"{own_agents.__name__}:Asks"


def read(folder: Path, *flags: str) -> Settings:
    return settings_from(["--trials-dir", str(folder), *flags], {"HARBOR_TASKS_DIR": str(folder)})


def with_agent(name: str = "Asks", **changes: Any) -> dict[str, Any]:
    own = {"mine": f"{own_agents.__name__}:{name}"}
    return {"own_agents": own, "allowed_agents": (*AGENTS, "mine"), **changes}


def test_it_is_named_once_and_allowed_unless_the_list_leaves_it_out(tmp_path: Path) -> None:
    both = read(tmp_path, "--agent", f"mine={PLACE}", "--agent", f"other-1={PLACE}", "--agent-name", "mine")
    assert both.own_agents == {"mine": PLACE, "other-1": PLACE}
    assert both.allowed_agents == (*AGENTS, "mine", "other-1")
    listed = read(tmp_path, "--agent", f"mine={PLACE}", "--allowed-agents", "bash")
    assert listed.allowed_agents == ("bash",)
    alone = read(tmp_path, "--agent", f"m={PLACE}", "--allowed-agents", "m", "--agent-name", "m")
    assert (needed(listed), needed(alone)) == (False, True)


def test_it_has_the_whole_bundle_of_tools_where_there_is_one(tmp_path: Path) -> None:
    settings = read(tmp_path, "--agent", f"mine={PLACE}")
    for name, part in (("mine", "all"), ("bash", None), ("terminus-2", "terminal")):
        assert tools_of(RunRequest(instance_id="t", agent_name=name), settings) == part


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--agent", PLACE], "is not NAME=pkg.mod:Class"),
        (["--agent", "mine=support"], "is not NAME=pkg.mod:Class"),
        (["--agent", f"Mine/..={PLACE}"], "is not NAME=pkg.mod:Class"),
        (["--agent", f"bash={PLACE}"], "--agent bash: that is an agent of the server's"),
        (["--agent", f"oracle={PLACE}"], "--agent oracle: that is an agent of the server's"),
        (["--agent", f"a={PLACE}", "--agent", f"a={PLACE}"], "named twice"),
        (["--agent", f"mine={PLACE}", "--allowed-agents", "bash", "--agent-name", "mine"], "leaves it out"),
        (["--agent-name", "mine"], "--agent-name 'mine': one of"),
    ],
)
def test_a_flag_that_names_none_is_one_line(flags: Sequence[str], said: str, tmp_path: Path) -> None:
    with pytest.raises(StartupError, match=said) as refused:
        read(tmp_path, *flags)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("no.such.module:Agent", r"cannot be imported \(ModuleNotFoundError"),
        ("support.own_agents:Nobody", r"cannot be imported \(AttributeError"),
        ("support.own_agents:NO_CLASS", "is no subclass of harbor.agents.base.BaseAgent"),
        ("pathlib:Path", "is no subclass of harbor.agents.base.BaseAgent"),
        ("support.own_agents:Unfinished", "lacks name, run, setup, version: name a whole agent"),
        ("support.own_agents:Blocking", "run is no coroutine"),
        ("support.own_agents:TakesLess", "run does not take instruction, environment, context"),
    ],
)
async def test_a_class_that_is_no_whole_agent_ends_the_server_at_its_start(
    place: str, said: str, tmp_path: Path
) -> None:
    with pytest.raises(StartupError, match=f"--agent mine={place}.*{said}") as refused:
        await prepare(read(tmp_path, "--agent", f"mine={place}"))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("leaves", ["raise SystemExit(0)", "raise KeyboardInterrupt"])
async def test_a_module_that_ends_the_program_is_one_line_too(
    leaves: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = f"leaves_{len(leaves)}"
    (tmp_path / f"{module}.py").write_text(leaves)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(StartupError, match=rf"--agent mine={module}:A cannot be imported \(.*raises {leaves[6:14]}"):
        await prepare(read(tmp_path, "--agent", f"mine={module}:A"))


async def test_its_options_are_checked_at_the_start(tmp_path: Path) -> None:
    flags = ["--agent", f"mine={PLACE}", "--agent-name", "mine", "--agent-kwargs"]
    await prepare(read(tmp_path, *flags, '{"turns": 2}'))
    with pytest.raises(StartupError, match=r"--agent-kwargs: .*turns"):
        await prepare(read(tmp_path, *flags, '{"turns": "many"}'))


async def trial(server: Stage, **asked: Any) -> dict[str, Any]:
    await prepare(server.settings)
    return await server.run(**{"agent_name": "mine", **asked})


async def test_it_runs_a_trial_with_the_trainings_sampling_and_is_counted_and_graded(tasks: Path) -> None:
    sampling = {"temperature": 0.5, "max_tokens": 9}
    script = replies("echo hello > greeting.txt")
    async with stage(tasks, script, **with_agent()) as server:
        answer = await trial(server, sampling_params=sampling)
        [request] = server.session.requests
        kept = list(server.settings.trials_dir.glob("*/agent/kept"))
    assert (answer["exit_status"], answer["reward"], len(kept)) == ("Submitted", 1.0, 1), answer
    assert answer["agent_metrics"]["turns"] == 1
    assert {key: request[key] for key in sampling} == sampling


async def test_a_cut_reply_ends_it_as_every_other_agent(tasks: Path) -> None:
    script = replies(completion("echo", finish_reason="length"))
    async with stage(tasks, script, **with_agent()) as server:
        answer = await trial(server)
        assert len(server.session.requests) == 1
    assert answer["exit_status"] == "SequenceLengthLimitExceeded"


async def test_one_that_fails_before_the_policy_had_a_turn_is_no_zero_of_the_policys(tasks: Path) -> None:
    async with stage(tasks, replies("true"), **with_agent("NeverAsks")) as server:
        answer = await trial(server)
    assert (answer["exit_status"], answer["infra_failure"]) == ("ModelEndpointFailed", True)
    assert "a mistake of its own" in answer["message"]


@pytest.mark.parametrize(
    ("name", "status", "said"),
    [
        ("Leaves", "AgentError", "SystemExit: 3"),
        ("Cancelled", "AgentError", "CancelledError, and nobody had cancelled"),
        ("TimedOut", "AgentError", "TimeoutError: a wait of its own"),
        ("CancelsItself", "ServerError", "something in the trial cancelled it"),
        ("LeavesAtSetup", "SandboxUnavailable", "SystemExit: 4"),
        ("CancelledAtSetup", "SandboxUnavailable", "CancelledError, and nobody had cancelled"),
        ("CannotBeMade", "InvalidAgent", "OwnCannotBeMade cannot be made: SystemExit: no key in the environment"),
        ("TellsItself", "ModelEndpointFailed", "model_url"),
    ],
)
async def test_what_it_raises_ends_its_own_trial_and_nothing_else(
    name: str, status: str, said: str, tasks: Path
) -> None:
    async with stage(tasks, replies("echo hello > greeting.txt"), **with_agent(name)) as server:
        answer = await asyncio.wait_for(trial(server), 60)
        health = await server.health()
    assert answer["exit_status"] == status, answer
    assert said in answer["message"]
    assert (answer["reward"], answer["infra_failure"]) == ((1.0, False) if status == "AgentError" else (0.0, True))
    assert (health["status"], health["in_flight"], health["oldest_trial_s"]) == ("ok", 0, None)


async def test_its_methods_may_name_their_arguments_as_they_like(tasks: Path) -> None:
    async with stage(tasks, replies("echo hello > greeting.txt"), **with_agent("OtherNames")) as server:
        answer = await trial(server)
    assert (answer["exit_status"], answer["reward"]) == ("Submitted", 1.0), answer


async def test_a_task_that_it_leaves_behind_touches_no_grading(tasks: Path) -> None:
    write_task(tasks, "slow", verify=f"sleep 1\n{GREETING}")
    async with stage(tasks, replies("echo hello > greeting.txt"), **with_agent("LeavesTasks")) as server:
        answer = await trial(server, instance_id="slow")
        [left] = own_agents.LeavesTasks.kept
        with pytest.raises(RuntimeError, match="the agent's phase is over"):
            await left
    assert (answer["exit_status"], answer["reward"]) == ("Submitted", 1.0), answer


@pytest.mark.parametrize("name", [PLACE, "harborrl_agent_server.agents.own:agent_mine", "agent_mine", "asks", "other"])
async def test_no_request_names_a_class_nor_what_was_not_allowed(tasks: Path, name: str) -> None:
    async with stage(tasks, replies("true"), **with_agent()) as server:
        answer = await trial(server, agent_name=name)
        assert server.session.requests == []
    assert answer["exit_status"] == "InvalidAgent"
