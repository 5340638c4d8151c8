"""mini-swe-agent, whole: the real program in a sandbox asks its model through the gateway."""

import asyncio
import json
import logging
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.responses import JSONResponse

from harborrl_agent_server.settings import AGENTS, Budgets
from support.agent_http import completion, replies
from support.agent_server import BUDGETS, MARKS, CustomProvider, stage
from support.agent_tasks import LISTS_PROCESSES, write_task
from support.failing_sessions import FAILING, failing
from support.held_trials import Gate
from support.mini_swe import PROGRAM, WHY, WithMiniSweAgent

pytestmark = [*MARKS, pytest.mark.skipif(PROGRAM is None, reason=WHY)]

SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


PATIENT = replace(BUDGETS, agent_timeout_s=250)
"""It imports a model library in every trial: five seconds alone on a processor, minutes on a machine that is busy."""


def staged(tasks: Path, script: Any, budgets: Budgets = PATIENT, **changes: Any) -> Any:
    place = f"{WithMiniSweAgent.__module__}:{WithMiniSweAgent.__qualname__}"
    provider = CustomProvider(place)
    return stage(tasks, script, provider=provider, budgets=budgets, allowed_agents=AGENTS, **changes)


def bash(command: str, number: int = 1, **changes: Any) -> JSONResponse:
    function = {"name": "bash", "arguments": json.dumps({"command": command})}
    call = {"id": f"call-{number}", "type": "function", "function": function}
    return completion("I act.", **{"finish_reason": "tool_calls", **changes}, tool_calls=[call], reasoning_content="hm")


HELLO = bash("echo hello > /app/greeting.txt; env | sort")


async def test_it_solves_a_task_and_every_turn_is_measured_and_kept(
    tasks: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sampling = {"temperature": 0.7, "top_p": 0.95, "max_tokens": 512, "top_k": 20}
    caplog.set_level(logging.DEBUG)
    async with staged(tasks, replies(HELLO, bash(SUBMIT, 2))) as server:
        answer = await server.run(agent_name="mini-swe-agent", sampling_params=sampling, api_key="sk-secret")
        requests = server.session.requests
        trial = server.settings.trials_dir / answer["trial_name"]
    assert (answer["reward"], answer["exit_status"]) == (1.0, "Submitted"), answer
    assert (answer["agent_metrics"]["turns"], answer["agent_metrics"]["tool_calls"]) == (2, 2)
    assert len(requests) == 2
    for request in requests:
        assert request.keys() - {"parallel_tool_calls"} == {"messages", "model", "tools", "session", *sampling}
        assert {key: request[key] for key in sampling} == sampling
    sampled = json.loads(bytes(HELLO.body))["choices"][0]["message"]
    assert requests[1]["messages"][2] == sampled
    trajectory = json.loads((trial / "agent" / "trajectory.json").read_text())
    assert [step["source"] for step in trajectory["steps"]] == ["system", "user", "agent", "agent", "user"][:4]
    token = re.search(r"/m/([^/\s\"\\]+)/v1", kept(trial))
    assert token is not None
    assert token.group(1) == "[token]"
    assert "sk-secret" not in kept(trial) + caplog.text
    assert not re.search(r"/m/[0-9a-f]{32}", kept(trial) + caplog.text)


def kept(trial: Path) -> str:
    return "".join(path.read_text(errors="replace") for path in trial.rglob("*") if path.is_file())


async def test_neither_task_nor_token_nor_key_is_in_any_process_list(tasks: Path) -> None:
    write_task(tasks, "secret", instruction="The secret instruction.")
    gate = Gate()
    async with staged(tasks, gate) as server:
        run = asyncio.ensure_future(
            server.run(agent_name="mini-swe-agent", instance_id="secret", api_key="sk-secret", patch="the gold patch")
        )
        await asyncio.wait_for(gate.until(1), 250)
        seen = await asyncio.to_thread(processes)
        await server.client.post(f"{server.url}/flush", json={"session_server_instance_id": "instance-a"})
        answer = await run
    assert "mini-swe-agent" in seen
    assert not [word for word in ("secret instruction", "sk-secret", "gold patch") if word in seen]
    assert not re.search(r"/m/[0-9a-f]{32}", seen)
    assert answer["exit_status"] == "Aborted"
    assert gate.waiting == 0


def processes() -> str:
    return subprocess.run(["/bin/ps", "-ewwo", "args="], check=True, capture_output=True, text=True).stdout


async def test_a_reply_cut_by_length_ends_it_after_one_request_and_is_graded(tasks: Path) -> None:
    async with staged(tasks, replies(bash("echo hello > /app/greeting.txt", finish_reason="length"))) as server:
        answer = await server.run(agent_name="mini-swe-agent")
        assert len(server.session.requests) == 1
    assert (answer["exit_status"], answer["eval_report"]) == ("SequenceLengthLimitExceeded", {"reward": 0.0})


async def test_a_full_sequence_ends_it_within_one_turn_and_what_it_did_counts(tasks: Path) -> None:
    async with staged(tasks, replies(bash("echo hello > /app/greeting.txt", total_tokens=4096))) as server:
        answer = await server.run(agent_name="mini-swe-agent", max_seq_len=4096)
        assert len(server.session.requests) == 1
    assert (answer["exit_status"], answer["reward"]) == ("SequenceLengthLimitExceeded", 1.0)


@pytest.mark.parametrize(("code", "name", "status", "requests"), FAILING)
async def test_it_never_asks_a_failing_session_more_often_than_the_gateway_does(
    tasks: Path, code: int, name: str, status: str, requests: int
) -> None:
    async with staged(tasks, failing(code, name)) as server:
        answer = await server.run(agent_name="mini-swe-agent")
        assert len(server.session.requests) == requests
    assert (answer["exit_status"], answer["infra_failure"]) == (status, status == "ModelEndpointFailed")


async def test_it_is_timed_out_and_graded_and_no_process_of_it_is_left(tasks: Path) -> None:
    write_task(tasks, "leftovers", verify=LISTS_PROCESSES)
    answer, left = await timed_out_in_its_command(tasks)
    assert (answer["exit_status"], answer["reward"]) == ("TimeLimitExceeded", 0.5)
    assert "sleep 433" not in left
    assert "mini-swe-agent" not in left


async def timed_out_in_its_command(tasks: Path) -> tuple[dict[str, Any], str]:
    """Answer, and what ran while it was graded. Where a busy machine takes all of a limit to begin, a longer one."""
    for limit in (25, 100, 400):
        script = replies(bash("(setsid sleep 4331 &); sleep 4332"))
        async with staged(tasks, script, budgets=replace(BUDGETS, agent_timeout_s=limit)) as server:
            answer = await server.run(agent_name="mini-swe-agent", instance_id="leftovers")
            if len(server.session.requests) == 1:
                trial = server.settings.trials_dir / answer["trial_name"]
                return answer, (trial / "verifier" / "processes.txt").read_text()
    raise AssertionError("it never asked its model within 400 s")


async def test_its_limit_of_turns_is_told_as_such(tasks: Path) -> None:
    async with staged(tasks, replies(HELLO), agent_name="mini-swe-agent", agent_kwargs={"stepLimit": 2}) as server:
        answer = await server.run(agent_name=None)
        assert len(server.session.requests) == 2
    assert (answer["exit_status"], answer["reward"]) == ("TurnLimitExceeded", 1.0)


async def test_a_policy_that_finds_its_token_asks_nothing_that_counts_for_others(tasks: Path) -> None:
    other = "$OPENAI_BASE_URL/../../other/v1/chat/completions"
    ask = f"""curl -s -o /dev/null -w '%{{http_code}}' -d '{{"messages":[]}}' "{other}" """
    async with staged(tasks, replies(bash(ask), bash(SUBMIT, 2))) as server:
        answer = await server.run(agent_name="mini-swe-agent")
        observed = server.session.requests[1]["messages"][-1]["content"]
    assert answer["exit_status"] == "Submitted"
    assert "401" in observed


async def test_a_sandbox_that_cannot_reach_the_gateway_is_no_zero_of_the_policys(tasks: Path) -> None:
    write_task(tasks, "alone", environment='workdir = "/app"\nnetwork_mode = "no-network"')
    async with staged(tasks, replies(HELLO)) as server:
        answer = await server.run(agent_name="mini-swe-agent", instance_id="alone")
        assert server.session.requests == []
    assert (answer["exit_status"], answer["infra_failure"]) == ("ModelEndpointFailed", True)
    assert "reach the gateway" in answer["message"]


async def test_where_it_is_not_installed_the_sandbox_is_at_fault(tasks: Path) -> None:
    async with stage(tasks, replies(HELLO), allowed_agents=AGENTS) as server:
        answer = await server.run(agent_name="mini-swe-agent")
        assert server.session.requests == []
    assert (answer["exit_status"], answer["infra_failure"]) == ("SandboxUnavailable", True)
    assert "mini-swe-agent needs mini-swe-agent in the sandbox" in answer["message"]
