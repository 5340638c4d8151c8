"""The dashboard of a real server process whose trials run in local sandboxes."""

import json
import socket
from pathlib import Path
from typing import Any

import httpx
import pytest

from harborrl_agent_server.dashboard.serving import bound
from harborrl_agent_server.errors import StartupError
from harborrl_agent_server.settings import Settings
from support.agent_server import MARKS
from support.agent_tasks import write_task
from support.held_trials import Gate
from support.server_process import asked, free_port, process

pytestmark = MARKS

SECRET = "correct-horse-battery"


async def until_running(client: httpx.AsyncClient, url: str) -> dict[str, Any]:
    """The first trial that the stream says is acting."""
    async with client.stream("GET", f"{url}/api/events") as stream:
        async for line in stream.aiter_lines():
            if line.startswith("data: "):
                found: list[dict[str, Any]] = json.loads(line.removeprefix("data: ")).get("live", {}).get("set", [])
                if found and found[0]["phase"] == "running":
                    return found[0]
    raise AssertionError("the stream ended")


async def test_a_trial_is_followed_from_its_start_to_its_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARBOR_ADMIN_SECRET", SECRET)
    write_task(tmp_path / "tasks", verify="echo checked; echo 1 >/logs/verifier/reward.txt")
    port, gate = free_port(), Gate()
    program = ("-m", "harborrl_agent_server", "--dashboard-port", str(port))
    headers = {"Authorization": f"Bearer {SECRET}"}
    board = f"http://127.0.0.1:{port}"
    async with (
        process(tmp_path / "tasks", tmp_path, program) as (server, url),
        httpx.AsyncClient(timeout=120, trust_env=False, headers=headers) as client,
        asked(url, gate) as run,
    ):
        live = await until_running(client, board)
        assert (live["task"], live["agent"]) == ("write-greeting", "bash")
        assert live["agent_since"] >= live["slot_since"] >= live["since"]
        gate.opened.set()
        answer = (await run).json()
        assert live["trial"] == answer["trial_name"]
        state = (await client.get(f"{board}/api/state")).json()
        assert [(row["status"], row["reward"]) for row in state["ended"]] == [("Submitted", 1.0)]
        shown = (await client.get(f"{board}/api/trials/{answer['trial_name']}")).json()
        assert [turn["said"] for turn in shown["trajectory"]["turns"]] == ["TASK_DONE"]
        assert shown["trajectory"]["instruction"] == "Write hello to /app/greeting.txt."
        assert shown["verifier"]["test-stdout.txt"].strip() == "checked"
        async with client.stream("GET", f"{board}/api/events") as stream:
            lines = stream.aiter_lines()
            assert await anext(lines) == "event: state"
            server.terminate()
            async for _ in lines:
                pass
        assert await server.wait() == 0


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        settings = Settings(tasks_dir=tmp_path, trials_dir=tmp_path, dashboard_port=port)
        with pytest.raises(StartupError, match=f"--dashboard-port {port} on 127.0.0.1: .*choose a free port"):
            bound(settings)


def test_without_a_port_nothing_listens(tmp_path: Path) -> None:
    assert bound(Settings(tasks_dir=tmp_path, trials_dir=tmp_path)) is None
