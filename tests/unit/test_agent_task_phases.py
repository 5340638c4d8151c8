"""Fields of task.toml that act while a trial runs, in whole trials over local sandboxes."""

import os
from pathlib import Path
from typing import Any

import pytest
from harbor.models.task.config import TaskConfig

from harborrl_agent_server.serve import keep_own_secret
from harborrl_agent_server.task_users import Users, users_of
from support.agent_http import replies
from support.agent_server import MARKS, stage
from support.agent_tasks import write_task

pytestmark = MARKS

WRITE = ("```sh\nid -u >/app/who; echo hello >/app/greeting.txt\n```", "TASK_DONE")


async def answer(folder: Path, *, environment: str = "", toml: str = "", **task: Any) -> dict[str, Any]:
    tasks = folder / "tasks"
    write_task(tasks, environment=f'workdir = "/app"\n{environment}', toml=toml, **task)
    async with stage(tasks, replies(*WRITE)) as server:
        return await server.run()


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        pytest.param('skills_dir = "/skills"', "does not support skills", id="skills"),
        pytest.param('[[environment.mcp_servers]]\nname = "m"\nurl = "http://m/"', "MCP servers", id="mcp"),
        pytest.param('[environment.healthcheck]\ncommand = "false"\nretries = 1', "Healthcheck failed", id="unwell"),
    ],
)
async def test_what_the_agent_or_the_sandbox_cannot_be_ends_the_trial_before_the_policy_acts(
    environment: str, said: str, tmp_path: Path
) -> None:
    ended = await answer(tmp_path, environment=environment)
    assert (ended["exit_status"], ended["infra_failure"], said in ended["message"]) == (
        "SandboxUnavailable",
        True,
        True,
    )


@pytest.mark.parametrize(
    "toml",
    [
        '[agent]\nuser = "nobody-here"',
        '[verifier]\nuser = "nobody-here"',
        '[agent]\nuser = "x; echo"',
        '[verifier]\nuser = "nobody-here"\nenvironment_mode = "separate"',
    ],
)
async def test_a_user_whom_the_image_does_not_have_is_no_zero_of_the_policys(toml: str, tmp_path: Path) -> None:
    ended = await answer(tmp_path, toml=toml)
    assert (ended["infra_failure"], "the users that task.toml names" in ended["message"]) == (True, True)
    assert "SandboxStartError" in ended["exception_type"]


async def test_a_verifiers_user_need_not_be_where_the_agent_acts() -> None:
    task = TaskConfig.model_validate_toml(
        '[agent]\nuser = 7\n[verifier]\nuser = "grader"\nenvironment_mode = "separate"\n[environment]\n'
    )
    assert users_of(task) == Users(agents=(7,), verifiers=("grader",))
    shared = task.model_copy(update={"verifier": task.verifier.model_copy(update={"environment_mode": None})})
    assert users_of(shared) == Users(agents=(7, "grader"))


async def test_a_healthcheck_that_passes_lets_the_trial_begin(tmp_path: Path) -> None:
    ended = await answer(tmp_path, environment='[environment.healthcheck]\ncommand = "test -d /app"')
    assert (ended["exit_status"], ended["reward"]) == ("Submitted", 1.0)


async def test_a_sidecar_that_a_task_collects_from_is_refused_when_the_trial_is_built(tmp_path: Path) -> None:
    ended = await answer(tmp_path, toml='[[verifier.collect]]\ncommand = "true"\nservice = "db"')
    assert (ended["exit_status"], "sidecar" in ended["message"]) == ("TaskNotFound", True)


async def test_agent_and_verifier_run_as_the_users_that_the_task_names(tmp_path: Path) -> None:
    verify = "id -u >&2; { [ $(cat /app/who) = 65534 ] && [ $(id -u) = 0 ]; } && echo 1 >/logs/verifier/reward.txt"
    ended = await answer(
        tmp_path,
        environment='[environment.healthcheck]\ncommand = "chmod 777 /app"',
        toml="[agent]\nuser = 65534\n[verifier]\nuser = 0",
        verify=f"{verify}\ntrue",
    )
    assert (ended["exit_status"], ended["reward"]) == ("Submitted", 1.0), ended


async def test_a_separate_verifier_grades_what_was_collected_after_the_agents_sandbox_is_gone(tmp_path: Path) -> None:
    seen = 'test ! -e /app/greeting.txt && [ "$(cat /logs/artifacts/greeting.txt)" = hello ]'
    ended = await answer(
        tmp_path,
        toml='[verifier]\nenvironment_mode = "separate"\n[[verifier.collect]]\n'
        'command = "cp /app/greeting.txt /logs/artifacts/"',
        verify=f"{seen} && echo 1 >/logs/verifier/reward.txt",
    )
    assert (ended["exit_status"], ended["reward"]) == ("Submitted", 1.0), ended


async def test_a_tasks_env_reads_the_servers_variables_but_not_its_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEVEL", "3")
    monkeypatch.setenv("HARBOR_ADMIN_SECRET", "s3cret")
    keep_own_secret(os.environ)
    verify = '[ "$A$B" = 3none ] && echo 1 >/logs/verifier/reward.txt'
    env = '[environment.env]\nA = "${LEVEL}"\nB = "${HARBOR_ADMIN_SECRET:-none}"'
    ended = await answer(tmp_path, environment=env, verify=verify)
    assert (ended["exit_status"], ended["reward"]) == ("Submitted", 1.0), ended
