"""terminus-2 for training, whole: Harbor's own agent and tmux, a session server over HTTP."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harborrl_agent_server.agents.registry import prepare
from harborrl_agent_server.errors import StartupError
from harborrl_agent_server.settings import Settings
from support.agent_http import completion, replies
from support.agent_server import BUDGETS, MARKS, CustomProvider, stage
from support.agent_tasks import LISTS_PROCESSES, write_task
from support.failing_sessions import FAILING, failing
from support.faulty_sandboxes import TmuxInBundle, WithoutTmux

pytestmark = [
    *MARKS,
    pytest.mark.skipif(shutil.which("tmux") is None, reason="terminus-2 needs tmux: apt-get install tmux"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of the model library that Harbor imports
]


def keys(*keystrokes: str, done: bool = False) -> str:
    commands = [{"keystrokes": text, "duration": 0.3} for text in keystrokes]
    return json.dumps({"analysis": "a", "plan": "p", "commands": commands, "task_complete": done})


HELLO = keys("echo hello > /app/greeting.txt; echo wri''tten\n")
DONE = keys(done=True)
DONE_XML = "<response><task_complete>true</task_complete></response>"


def until_written(messages: list[dict[str, Any]], number: int) -> str:
    """Types the command once, looks at the terminal until it has run, and says that it is done, as often as asked."""
    seen = any("\nwritten" in str(message["content"]) for message in messages)
    return HELLO if number == 0 else DONE if seen else keys("")


async def test_it_solves_a_task_with_the_trainings_sampling_on_every_request(tasks: Path) -> None:
    sampling = {"temperature": 0.7, "top_p": 0.95, "max_tokens": 512, "top_k": 20}
    async with stage(tasks, until_written) as server:
        answer = await server.run(agent_name="terminus-2", sampling_params=sampling)
        requests = server.session.requests
        trial = server.settings.trials_dir / answer["trial_name"]
    assert (answer["reward"], answer["exit_status"], answer["warnings"]) == (1.0, "Submitted", []), answer
    assert answer["agent_metrics"]["turns"] == len(requests) >= 3
    assert answer["agent_metrics"]["tool_calls"] == len(requests) - 2
    for request in requests:
        assert request.keys() == {"messages", "model", "session", *sampling}
        assert {key: request[key] for key in sampling} == sampling
    assert json.loads((trial / "agent" / "trajectory.json").read_text())["schema_version"].startswith("ATIF")


async def test_the_models_messages_go_back_exactly_as_they_came(tasks: Path) -> None:
    first = completion(HELLO, reasoning_content="I think", tool_calls=None)
    async with stage(tasks, replies(first, DONE)) as server:
        await server.run(agent_name="terminus-2")
        second = server.session.requests[1]["messages"]
    assert second[1] == {"role": "assistant", "content": HELLO, "reasoning_content": "I think", "tool_calls": None}


async def test_a_reply_cut_by_length_ends_it_after_one_request_and_is_graded(tasks: Path) -> None:
    async with stage(tasks, replies(completion(HELLO, finish_reason="length"))) as server:
        answer = await server.run(agent_name="terminus-2")
        assert len(server.session.requests) == 1
    assert (answer["exit_status"], answer["eval_report"]) == ("SequenceLengthLimitExceeded", {"reward": 0.0})


async def test_a_full_sequence_ends_it_within_one_turn(tasks: Path) -> None:
    async with stage(tasks, replies(completion(HELLO, total_tokens=4096))) as server:
        answer = await server.run(agent_name="terminus-2", max_seq_len=4096)
        assert len(server.session.requests) == 1
    assert (answer["exit_status"], answer["infra_failure"]) == ("SequenceLengthLimitExceeded", False)
    assert answer["agent_metrics"]["tool_calls"] == 1


@pytest.mark.parametrize(("code", "name", "status", "requests"), FAILING)
async def test_it_never_asks_a_failing_session_more_often_than_the_gateway_does(
    tasks: Path, code: int, name: str, status: str, requests: int
) -> None:
    async with stage(tasks, failing(code, name)) as server:
        answer = await server.run(agent_name="terminus-2")
        assert len(server.session.requests) == requests
    assert (answer["exit_status"], answer["infra_failure"]) == (status, status == "ModelEndpointFailed")


@pytest.mark.parametrize(
    ("parser", "hostile", "done"),
    [
        (
            "xml",
            f"<response>{'<plan>' * 50_000}</response>",
            DONE_XML,
        ),
        ("json", "{" * 2**20, DONE),
    ],
)
async def test_a_reply_that_would_hold_the_server_up_is_a_parse_error_that_the_policy_is_told(
    tasks: Path, parser: str, hostile: str, done: str
) -> None:
    kwargs = {"parser_name": parser}
    async with stage(tasks, replies(hostile, done), agent_name="terminus-2", agent_kwargs=kwargs) as server:
        answer = await server.run(agent_name=None)
        told = server.session.requests[1]["messages"][-1]["content"]
    assert "parsing errors" in told
    assert {"xml": "close each tag", "json": "are read; answer more briefly"}[parser] in told
    assert (answer["exit_status"], answer["reward"]) == ("Submitted", 0.0)


async def test_its_limit_of_turns_is_told_as_such(tasks: Path) -> None:
    kwargs = {"max_turns": 2}
    async with stage(tasks, replies(HELLO), agent_name="terminus-2", agent_kwargs=kwargs) as server:
        answer = await server.run(agent_name=None)
        assert len(server.session.requests) == 2
    assert (answer["exit_status"], answer["infra_failure"]) == ("TurnLimitExceeded", False)


async def test_it_is_timed_out_and_graded_and_its_terminal_is_gone(tasks: Path) -> None:
    write_task(tasks, "leftovers", verify=LISTS_PROCESSES)
    script = replies(
        json.dumps({"analysis": "", "plan": "", "commands": [{"keystrokes": "sleep 4321\n", "duration": 60}]})
    )
    budgets = replace(BUDGETS, agent_timeout_s=3)
    async with stage(tasks, script, budgets=budgets) as server:
        answer = await server.run(agent_name="terminus-2", instance_id="leftovers")
        left = (server.settings.trials_dir / answer["trial_name"] / "verifier" / "processes.txt").read_text()
    assert (answer["exit_status"], answer["reward"]) == ("TimeLimitExceeded", 0.5)
    assert "sleep 4321" not in left
    assert "tmux" not in left


async def test_without_tmux_the_sandbox_is_at_fault_and_nothing_is_installed(tasks: Path) -> None:
    provider = CustomProvider(f"{WithoutTmux.__module__}:{WithoutTmux.__qualname__}")
    async with stage(tasks, replies(HELLO), provider=provider) as server:
        answer = await server.run(agent_name="terminus-2")
        assert server.session.requests == []
    assert (answer["exit_status"], answer["infra_failure"]) == ("SandboxUnavailable", True)
    assert "terminus-2 needs tmux in the sandbox" in answer["message"]


async def test_the_tools_bundle_stands_in_for_what_the_image_lacks(tasks: Path) -> None:
    provider = CustomProvider(f"{TmuxInBundle.__module__}:{TmuxInBundle.__qualname__}")
    async with stage(tasks, until_written, provider=provider) as server:
        answer = await server.run(agent_name="terminus-2")
    assert (answer["exit_status"], answer["reward"]) == ("Submitted", 1.0)


async def test_an_option_that_would_change_how_the_model_is_asked_stops_the_server_at_its_start(tasks: Path) -> None:
    settings = Settings(tasks, tasks.parent / "trials", agent_name="terminus-2", agent_kwargs={"temperature": 0})
    with pytest.raises(StartupError, match="temperature: terminus-2 takes"):
        await prepare(settings)
    await prepare(replace(settings, agent_kwargs={"max_turns": 5}))
    with pytest.raises(StartupError, match="max_turns"):
        await prepare(replace(settings, agent_kwargs={"max_turns": "many"}))
