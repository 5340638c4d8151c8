"""What a server refuses to be asked, and what it never shows."""

import asyncio
import contextlib
import json
import logging
from pathlib import Path
from typing import Any

import httpx
import pytest

from harborrl_agent_server.bearer import is_bearer, may_act
from harborrl_trainer.rollout.agent_client import AgentClient, BadReply
from support.agent_http import SessionServer, replies, serving
from support.agent_server import MARKS, stage
from support.held_trials import Gate
from support.server_process import process

pytestmark = MARKS


@pytest.mark.parametrize(
    ("header", "holds"),
    [
        ("Bearer right", True),
        ("bearer  right ", True),
        ("Bearer wrong", False),
        ("Bearer right2", False),
        ("Basic right", False),
        ("right", False),
        ("Bearer", False),
        ("", False),
        ("Bearer r\u00efght", False),
    ],
)
def test_only_the_bearer_of_the_secret_is_one(header: str, holds: bool) -> None:
    assert is_bearer("right", header) is holds


def test_without_a_secret_nobody_is_asked_for_one() -> None:
    assert may_act("", "")
    assert not may_act("right", "")


async def test_run_is_open_unless_the_server_guards_it(tasks: Path) -> None:
    async with stage(tasks, replies("TASK_DONE"), admin_secret="right") as server:
        assert (await server.run())["exit_status"] == "Submitted"


async def test_a_guarded_run_takes_the_bearer_alone(tasks: Path) -> None:
    async with stage(tasks, replies("TASK_DONE"), admin_secret="right", guard_run=True) as server:
        for header in ({}, {"Authorization": "Bearer wrong"}):
            refused = await server.client.post(f"{server.url}/run", json=server.body(), headers=header)
            assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
        assert (server.runs.outcomes.total(), server.session.requests) == (0, [])
        ours, stranger = [AgentClient(server.url, ceiling_s=7200, admin_secret=key) for key in ("right", None)]
        assert (await ours.run(server.body())).exit_status == "Submitted"
        with pytest.raises(BadReply, match="401"):
            await stranger.run(server.body())
        await ours.close()
        await stranger.close()


DEEP = 100_000


@pytest.mark.parametrize(
    "column",
    [
        pytest.param("[" * DEEP + "]" * DEEP, id="a list in a list in a list"),
        pytest.param('{"a":' * DEEP + "1" + "}" * DEEP, id="an object in an object"),
    ],
)
@pytest.mark.parametrize("name", ["unknown_column", "sampling_params"])
async def test_a_document_nested_without_end_is_malformed(tasks: Path, name: str, column: str) -> None:
    async with stage(tasks, replies("")) as server:
        body = json.dumps(server.body())[:-1] + f', "{name}": {column}}}'
        answer = await server.client.post(f"{server.url}/run", content=body)
        assert answer.status_code == 422
        assert (await server.health())["status"] == "ok"


@pytest.mark.parametrize(
    "field",
    [
        '"sampling_params": {"temperature": NaN}',
        '"sampling_params": {"logit_bias": {"7": -Infinity}}',
        '"deadline_s": Infinity',
        '"deadline_s": -1',
        pytest.param('"base_url": "http://' + "a" * 5000 + '/v1"', id="an endless address"),
        '"max_seq_len": 0',
        '"max_seq_len": true',
        '"deadline_s": true',
        '"instance_id": "\\ud800"',
        '"instance_id": null',
    ],
)
async def test_a_value_that_nobody_can_mean_is_malformed(tasks: Path, field: str) -> None:
    async with stage(tasks, replies("")) as server:
        body = json.dumps(server.body())[:-1] + f", {field}}}"
        answer = await server.client.post(f"{server.url}/run", content=body)
        assert (answer.status_code, server.runs.outcomes.total()) == (422, 0)


@pytest.mark.parametrize(
    "columns",
    [
        pytest.param({"patch": "x" * 10_000_000}, id="ten megabytes"),
        pytest.param({"reward": 1, "exit_status": "Submitted", "trial_name": "../.."}, id="names of the answer"),
        pytest.param({"\u0000": "\u0000", "ключ": ["\u202e"]}, id="odd names"),
        pytest.param({"max_seq_len": 10**30}, id="a number beyond any bound"),
    ],
)
async def test_whatever_else_a_row_holds_changes_nothing(tasks: Path, columns: dict[str, Any]) -> None:
    async with stage(tasks, replies("TASK_DONE")) as server:
        answer = await server.run(**columns)
    assert (answer["exit_status"], answer["reward"]) == ("Submitted", 0.0)


@pytest.mark.parametrize("name", ["x" * 100_000, "a\nb", "a/../../etc", "\u0000", "é", "..", "a" * 129, "-x", "a b"])
async def test_an_id_that_names_no_task_is_refused_in_a_short_line(
    tasks: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "harborrl_agent_server")
    async with stage(tasks, replies("")) as server:
        answer = await server.run(instance_id=name)
        seen = server.runs.snapshot().finished[0]
        assert not server.settings.trials_dir.exists()
    assert answer["exit_status"] == "InvalidInstanceId"
    assert len(answer["message"]) < 400
    assert "\n" not in answer["message"]
    assert len(seen.instance_id) <= 128
    (line,) = [record.getMessage() for record in caplog.records if "InvalidInstanceId" in record.getMessage()]
    assert ("\n" in line, len(line) < 800) == (False, True)


SECRETS = {"api_key": "sk-canary-key", "patch": "canary-gold-patch", "HF_TOKEN": "canary-column"}


async def test_whoever_shows_trials_is_told_what_to_hide_before_a_trial_can_leave_anything(tasks: Path) -> None:
    known: list[str] = []
    async with stage(tasks, replies("TASK_DONE")) as server:
        server.runs.learn = known.append
        await server.run(**SECRETS, instance_id="no-such-task")
    assert known == [SECRETS["api_key"]]


async def test_no_secret_of_a_request_reaches_log_disk_or_snapshot(
    tasks: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with stage(
        tasks, replies("```sh\nenv; ps -e -o args=\n```", "TASK_DONE"), admin_secret="canary-admin"
    ) as server:
        await server.run(**SECRETS)
        shown = str(server.runs.snapshot())
        model_saw = json.dumps([request["messages"] for request in server.session.requests])
        metrics = (await server.client.get(f"{server.url}/metrics")).text
        health = json.dumps(await server.health())
        disk = "".join(
            path.read_text(errors="replace") for path in server.settings.trials_dir.rglob("*") if path.is_file()
        )
    for text in (shown, model_saw, metrics, health, disk, caplog.text):
        assert "canary" not in text


async def test_no_secret_is_in_the_arguments_of_a_process(tasks: Path, tmp_path: Path) -> None:
    gate = Gate()
    async with (
        process(tasks, tmp_path, ["-m", "harborrl_agent_server"]) as (server, url),
        serving(SessionServer(gate).app) as session_url,
        httpx.AsyncClient(timeout=300) as client,
    ):
        body = {"instance_id": "write-greeting", "base_url": f"{session_url}/sessions/s/v1", **SECRETS}
        run = asyncio.ensure_future(client.post(f"{url}/run", json=body))
        await gate.until(1)
        arguments = command_lines()
        gate.opened.set()
        assert (await run).json()["exit_status"] == "Submitted"
        assert server.returncode is None
        log = (tmp_path / "log").read_text()
    assert "canary" not in arguments
    assert "canary" not in log


def command_lines() -> str:
    """Of all processes of this machine."""
    found = []
    for arguments in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(arguments.read_text(errors="replace"))
    return "\n".join(found)
