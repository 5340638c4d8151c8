"""Whole trials through HTTP: real Harbor, real namespaces, a session server that answers from a script."""

import asyncio
import json
import logging
import math
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.agent_http import completion, replies
from support.agent_server import BUDGETS, MARKS, CustomProvider, stage
from support.agent_tasks import LISTS_PROCESSES, write_task
from support.failing_sessions import failing
from support.faulty_sandboxes import LostDuringCommand, NeverStarts, OutOfMemory, StopRaises, WithoutTar

pytestmark = MARKS

HELLO = "```sh\necho hello > /app/greeting.txt\n```"


def of(sandbox: type) -> CustomProvider:
    return CustomProvider(f"{sandbox.__module__}:{sandbox.__qualname__}")


def sh(command: str) -> str:
    return f"```sh\n{command}\n```"


async def test_the_oracle_earns_the_whole_reward(tasks: Path) -> None:
    async with stage(tasks, replies("")) as server:
        answer = await server.run(agent_name="oracle")
    assert (answer["reward"], answer["exit_status"], answer["eval_report"]) == (1.0, "Submitted", {"reward": 1.0}), (
        answer
    )
    assert answer["infra_failure"] is False
    assert all(math.isfinite(value) for value in answer["agent_metrics"].values())


async def test_the_oracle_is_refused_unless_the_server_allows_it(tasks: Path) -> None:
    async with stage(tasks, replies(""), allow_oracle=False) as server:
        answer = await server.run(agent_name="oracle")
    assert (answer["exit_status"], answer["infra_failure"]) == ("InvalidAgent", True)
    assert "--allow-oracle" in answer["message"]


async def test_the_log_tells_a_zero_from_no_reward(tasks: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="harborrl_agent_server.runs")
    async with stage(tasks, replies("")) as server:
        await server.run(agent_name="nop")
        await server.run(agent_name="nobody")
    said = [record.getMessage().split(": ", 1)[1] for record in caplog.records if record.name.endswith(".runs")]
    assert said[0].startswith("Submitted, reward 0")
    assert said[1].startswith("InvalidAgent, no reward")


async def test_an_agent_that_does_nothing_earns_a_zero_that_counts(tasks: Path) -> None:
    async with stage(tasks, replies("")) as server:
        answer = await server.run(agent_name="nop")
    assert (answer["reward"], answer["exit_status"], answer["eval_report"]) == (0.0, "Submitted", {"reward": 0.0})


async def test_the_bash_agent_acts_sees_and_replays_the_model_verbatim(tasks: Path) -> None:
    first = completion(HELLO, reasoning_content="I think", tool_calls=None)
    async with stage(tasks, replies(first, "TASK_DONE")) as server:
        answer = await server.run()
        requests = server.session.requests
    assert (answer["reward"], answer["exit_status"]) == (1.0, "Submitted")
    assert (answer["agent_metrics"]["turns"], answer["agent_metrics"]["tool_calls"]) == (2, 1)
    assert requests[1]["messages"][: len(requests[0]["messages"])] == requests[0]["messages"]
    assert requests[1]["messages"][-2:] == [
        {"role": "assistant", "content": HELLO, "reasoning_content": "I think", "tool_calls": None},
        {"role": "user", "content": "exit code 0\n(no output)"},
    ]
    assert {key: requests[0][key] for key in ("temperature", "max_tokens")} == {"temperature": 0.8, "max_tokens": 64}


async def test_the_conversation_is_kept_beside_the_trial(tasks: Path) -> None:
    async with stage(tasks, replies(HELLO, "TASK_DONE")) as server:
        answer = await server.run(patch="the gold patch", api_key="sk-secret")
        trial = server.settings.trials_dir / answer["trial_name"]
    trajectory = json.loads((trial / "agent" / "trajectory.json").read_text())
    assert trajectory["end"] == "Submitted"
    assert [message["role"] for message in trajectory["messages"][-3:]] == ["assistant", "user", "assistant"]
    kept = "".join(path.read_text(errors="replace") for path in trial.rglob("*") if path.is_file())
    assert "the gold patch" not in kept
    assert "sk-secret" not in kept


async def test_a_length_cut_ends_the_trial_after_one_request_and_runs_nothing(tasks: Path) -> None:
    async with stage(tasks, replies(completion(HELLO, finish_reason="length"))) as server:
        answer = await server.run()
        assert len(server.session.requests) == 1
    assert (answer["exit_status"], answer["reward"], answer["eval_report"]) == (
        "SequenceLengthLimitExceeded",
        0.0,
        {"reward": 0.0},
    )


async def test_a_generation_that_was_broken_off_is_no_turn_of_the_policy_and_runs_nothing(tasks: Path) -> None:
    async with stage(tasks, replies(completion(HELLO, finish_reason="abort"))) as server:
        answer = await server.run()
        assert len(server.session.requests) == 1
    assert (answer["exit_status"], answer["eval_report"]) == ("ModelEndpointFailed", {})
    assert answer["agent_metrics"]["tool_calls"] == 0
    assert "finish_reason abort" in answer["message"]


async def test_max_seq_len_is_judged_by_the_usage_of_each_reply(tasks: Path) -> None:
    async with stage(tasks, replies(completion(HELLO, total_tokens=2048))) as server:
        answer = await server.run(max_seq_len=2048)
        assert len(server.session.requests) == 1
    assert (answer["exit_status"], answer["reward"]) == ("SequenceLengthLimitExceeded", 1.0)


async def test_a_model_that_never_ends_reaches_the_turn_limit_and_is_graded(tasks: Path) -> None:
    async with stage(tasks, replies(HELLO), agent_kwargs={"maxTurns": 3}) as server:
        answer = await server.run()
        assert len(server.session.requests) == 3
    assert (answer["exit_status"], answer["reward"]) == ("TurnLimitExceeded", 1.0)


def processes() -> str:
    return subprocess.run(["/bin/ps", "-e", "-o", "args="], check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize(
    ("script", "status", "requests"),
    [
        pytest.param(
            failing(400, "context_length_exceeded"),
            "SequenceLengthLimitExceeded",
            1,
            id="a full context is the policy's end",
        ),
        pytest.param(failing(400, "not_append_only"), "ModelEndpointFailed", 1, id="a refused history is ours"),
        pytest.param(failing(404, "unknown"), "ModelEndpointFailed", 1, id="a session that is gone is not asked twice"),
        pytest.param(failing(500, "boom"), "ModelEndpointFailed", 3, id="a failing server is asked three times"),
    ],
)
async def test_each_refusal_of_the_session_server_has_its_outcome(
    tasks: Path, script: Any, status: str, requests: int
) -> None:
    async with stage(tasks, script) as server:
        answer = await server.run()
        assert len(server.session.requests) == requests
    assert answer["exit_status"] == status
    assert answer["infra_failure"] is (status == "ModelEndpointFailed")


@pytest.mark.parametrize(
    "url", ["http://169.254.169.254/v1", "file:///etc/passwd", "http://user:pw@host/v1", "http://metadata/v1", None]
)
async def test_an_address_that_is_no_session_is_never_asked(tasks: Path, url: str | None) -> None:
    async with stage(tasks, replies("")) as server:
        answer = await server.run(base_url=url)
    assert (answer["exit_status"], answer["eval_report"]) == ("ModelEndpointFailed", {})


async def test_a_timed_out_agent_is_graded_and_leaves_no_process_behind(tasks: Path) -> None:
    write_task(tasks, "leftovers", verify=LISTS_PROCESSES)
    script = replies(sh("(sleep 4321 & setsid sleep 4322 &) ; sleep 4323"))
    budgets = replace(BUDGETS, agent_timeout_s=1)
    async with stage(tasks, script, budgets=budgets) as server:
        answer = await server.run(instance_id="leftovers")
        processes = (server.settings.trials_dir / answer["trial_name"] / "verifier" / "processes.txt").read_text()
    assert (answer["exit_status"], answer["reward"], answer["eval_report"]) == (
        "TimeLimitExceeded",
        0.5,
        {"reward": 0.5},
    )
    assert "sleep 432" not in processes


async def test_a_slow_command_is_killed_and_the_model_sees_124(tasks: Path) -> None:
    script = replies(sh("echo begun; sleep 4324"), "TASK_DONE")
    async with stage(tasks, script, agent_kwargs={"commandTimeoutSeconds": 2}) as server:
        answer = await server.run()
        assert server.session.requests[1]["messages"][-1]["content"] == "exit code 124\nbegun"
    assert answer["exit_status"] == "Submitted"
    assert "sleep 4324" not in processes()


HANGS = "sleep 4325"


@pytest.mark.parametrize(
    ("verify", "status", "reward"),
    [
        pytest.param("exit 7", "VerifierError", 0.0, id="no reward file"),
        pytest.param(": >/logs/verifier/reward.txt", "VerifierError", 0.0, id="an empty reward file"),
        pytest.param("echo nan >/logs/verifier/reward.txt", "VerifierError", 0.0, id="NaN"),
        pytest.param("echo 3 >/logs/verifier/reward.json", "VerifierError", 0.0, id="a scalar document"),
        pytest.param(
            """echo '{"a":1,"b":0}' >/logs/verifier/reward.json""", "VerifierError", 0.0, id="several keys, none named"
        ),
        pytest.param(
            """echo '{"score":0.25}' >/logs/verifier/reward.json""", "Submitted", 0.25, id="one key of any name"
        ),
        pytest.param(
            "echo 1 >/logs/verifier/reward.txt; exit 7", "Submitted", 1.0, id="the exit code of test.sh does not count"
        ),
        pytest.param(HANGS, "VerifierError", 0.0, id="a verifier that hangs"),
    ],
)
async def test_what_a_verifier_leaves_decides(tasks: Path, verify: str, status: str, reward: float) -> None:
    write_task(tasks, "graded", verify=verify)
    budgets = replace(BUDGETS, verifier_s=1) if verify == HANGS else BUDGETS
    async with stage(tasks, replies(""), budgets=budgets) as server:
        answer = await server.run(instance_id="graded")
    assert (answer["exit_status"], answer["reward"], answer["infra_failure"]) == (status, reward, False)
    assert answer["eval_report"]


async def test_a_reward_that_the_agent_planted_is_not_taken(tasks: Path) -> None:
    write_task(tasks, "planted", verify=":")
    plant = sh(
        "echo 1 >/logs/verifier/reward.txt; (setsid sh -c 'while :; do echo 1 >/logs/verifier/reward.txt; done' &)"
    )
    async with stage(tasks, replies(plant, "TASK_DONE")) as server:
        answer = await server.run(instance_id="planted")
    assert (answer["exit_status"], answer["reward"]) == ("VerifierError", 0.0)


SHIM = "rm -f /usr/local/bin/rm; printf '#!/bin/sh\\n' >/usr/local/bin/rm; chmod +x /usr/local/bin/rm"


PLANTED = "/logs/verifier/reward.txt"


@pytest.mark.parametrize(
    "plant",
    [
        pytest.param(f"echo 1 >{PLANTED}", id="a file"),
        pytest.param(f"echo 1 >{PLANTED}; touch -d 2099-01-01 {PLANTED}", id="a file of the future"),
        pytest.param(f"echo 1 >{PLANTED}; chmod 0 {PLANTED}", id="a file that nobody may write"),
        pytest.param(f"echo 1 >/logs/verifier/x; ln -s x {PLANTED}", id="a link to a file"),
        pytest.param(f"mkfifo {PLANTED}", id="a pipe that nobody reads"),
        pytest.param(f"mkdir {PLANTED}", id="a folder"),
    ],
)
async def test_a_planted_reward_that_survives_its_removal_is_not_taken_and_costs_no_trial(
    tasks: Path, plant: str
) -> None:
    write_task(tasks, "planted", verify=":")
    async with stage(tasks, replies(sh(f"{SHIM}; {plant}"), "TASK_DONE")) as server:
        answer = await server.run(instance_id="planted")
    assert (answer["exit_status"], answer["reward"], answer["infra_failure"]) == ("VerifierError", 0.0, False)


async def test_what_the_verifier_adds_to_a_planted_reward_counts_alone(tasks: Path) -> None:
    write_task(tasks, "appends", verify=f"echo 0.5 >>{PLANTED}")
    async with stage(tasks, replies(sh(f"{SHIM}; echo 1 >{PLANTED}"), "TASK_DONE")) as server:
        answer = await server.run(instance_id="appends")
    assert (answer["exit_status"], answer["reward"]) == ("Submitted", 0.5)


async def test_a_sandbox_that_never_starts_is_no_number(tasks: Path) -> None:
    async with stage(tasks, replies(""), provider=of(NeverStarts)) as server:
        answer = await server.run()
        assert (await server.health())["in_flight"] == 0
    assert (answer["exit_status"], answer["eval_report"], answer["infra_failure"]) == ("SandboxUnavailable", {}, True)
    assert "ImagePullFailed: pull access denied" in answer["message"]


async def test_an_image_without_tar_is_named_and_is_no_number(tasks: Path) -> None:
    async with stage(tasks, replies(""), provider=of(WithoutTar)) as server:
        answer = await server.run()
    assert (answer["exit_status"], answer["infra_failure"]) == ("SandboxUnavailable", True)
    assert "ImageUnusable" in answer["message"]
    assert "tar: not found" in answer["message"]


async def test_a_sandbox_lost_under_the_agent_is_no_number(tasks: Path) -> None:
    async with stage(tasks, replies(sh("lose-me")), provider=of(LostDuringCommand)) as server:
        answer = await server.run()
    assert (answer["exit_status"], answer["eval_report"], answer["infra_failure"]) == ("SandboxLost", {}, True)


async def test_memory_that_the_policy_used_up_is_its_own_zero(tasks: Path) -> None:
    async with stage(tasks, replies(sh("eat")), provider=of(OutOfMemory)) as server:
        answer = await server.run()
    assert (answer["exit_status"], answer["eval_report"]) == ("AgentError", {"reward": 0.0})


async def test_a_reward_survives_a_stop_that_fails(tasks: Path) -> None:
    async with stage(tasks, replies(HELLO, "TASK_DONE"), provider=of(StopRaises)) as server:
        answer = await server.run()
    assert (answer["exit_status"], answer["reward"]) == ("Submitted", 1.0)
    assert "the daemon does not answer" in answer["warnings"][0]


@pytest.mark.parametrize(
    ("instance_id", "status"),
    [
        ("../write-greeting", "InvalidInstanceId"),
        ("", "InvalidInstanceId"),
        (".", "InvalidInstanceId"),
        ("/etc", "InvalidInstanceId"),
        ("escape", "InvalidInstanceId"),
        ("no-such-task", "TaskNotFound"),
        ("no-verifier", "TaskNotFound"),
        ("bad-toml", "TaskNotFound"),
    ],
)
async def test_an_id_leads_to_a_task_or_to_a_named_refusal(tasks: Path, instance_id: str, status: str) -> None:
    outside = write_task(tasks.parent / "tasks-evil", "outside")
    (tasks / "escape").symlink_to(outside)
    (write_task(tasks, "no-verifier") / "tests" / "test.sh").unlink()
    (write_task(tasks, "bad-toml") / "task.toml").write_text("not toml [")
    async with stage(tasks, replies("")) as server:
        answer = await server.run(instance_id=instance_id, agent_name="nop")
    assert (answer["exit_status"], answer["infra_failure"], answer["reward"]) == (status, True, 0.0)
    assert answer["message"]


async def test_an_id_in_capitals_finds_its_lower_case_directory(tasks: Path) -> None:
    async with stage(tasks, replies("")) as server:
        assert (await server.run(instance_id="Write-Greeting", agent_name="oracle"))["reward"] == 1.0


@pytest.mark.parametrize("name", ["claude-code", "os:system", "harbor.agents.nop:NopAgent"])
async def test_an_agent_outside_the_list_is_refused_by_name(tasks: Path, name: str) -> None:
    async with stage(tasks, replies("")) as server:
        answer = await server.run(agent_name=name)
    assert (answer["exit_status"], answer["infra_failure"]) == ("InvalidAgent", True)
    assert "bash" in answer["message"]


async def test_eight_samples_of_one_task_share_nothing(tasks: Path) -> None:
    async with stage(tasks, replies(HELLO, *(["TASK_DONE"] * 99))) as server:
        answers = await asyncio.gather(*(server.run(agent_name="oracle") for _ in range(8)))
        names = {answer["trial_name"] for answer in answers}
        assert {path.name for path in server.settings.trials_dir.iterdir()} == names
    assert len(names) == 8
    assert {answer["reward"] for answer in answers} == {1.0}
