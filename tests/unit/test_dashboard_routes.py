"""The dashboard over HTTP: who may look, what every answer carries, what the stream says, and what it never shows."""

import json
import threading
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any, override

import httpx
import pytest

from harborrl_agent_server.dashboard.feed import WATCHERS
from harborrl_agent_server.dashboard.state import StepReward
from support.agent_http import eventually
from support.agent_tasks import write_task
from support.dashboard import Board, bash_trial, dashboard, ended, record, running, write_trial

SECRET = "correct-horse-battery"
TRIAL = "write-greeting-0123456789ab"


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(timeout=30, trust_env=False) as client:
        yield client


async def events(client: httpx.AsyncClient, url: str) -> AsyncGenerator[tuple[str, dict[str, Any]]]:
    async with client.stream("GET", f"{url}/api/events") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        name = ""
        async for line in answer.aiter_lines():
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            if line.startswith("data: "):
                yield name, json.loads(line.removeprefix("data: "))


@pytest.mark.parametrize("path", ["/", "/trials/x", "/api/facts", "/api/state", "/api/events", f"/api/trials/{TRIAL}"])
async def test_nobody_looks_without_the_secret(tmp_path: Path, client: httpx.AsyncClient, path: str) -> None:
    async with dashboard(tmp_path, Board(), admin_secret=SECRET) as (url, _):
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": SECRET}, {"Cookie": "harborrl-x=1"}):
            answer = await client.get(url + path, headers=headers)
            assert answer.status_code == (401 if path.startswith("/api/") else 303)


async def test_a_program_looks_with_the_bearer_of_flush(tmp_path: Path, client: httpx.AsyncClient) -> None:
    async with dashboard(tmp_path, Board(), admin_secret=SECRET) as (url, _):
        answer = await client.get(f"{url}/api/state", headers={"Authorization": f"Bearer {SECRET}"})
    assert answer.json()["server"]["capacity"] == 8


async def test_a_browser_trades_the_secret_for_a_cookie_that_does_not_hold_it(
    tmp_path: Path, client: httpx.AsyncClient
) -> None:
    async with dashboard(tmp_path, Board(), admin_secret=SECRET) as (url, _):
        refused = await client.post(f"{url}/login", data={"secret": "wrong"})
        assert (refused.status_code, "not the secret" in refused.text, len(client.cookies)) == (401, True, 0)
        answer = await client.post(f"{url}/login", data={"secret": SECRET})
        assert answer.status_code == 303
        cookie = answer.headers["set-cookie"]
        assert SECRET not in cookie
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert (await client.get(f"{url}/")).status_code == 200
        await client.post(f"{url}/logout")
        assert (await client.get(f"{url}/")).status_code == 303


@pytest.mark.parametrize(
    ("wanted", "leads_to"),
    [(f"/trials/{TRIAL}", f"/trials/{TRIAL}"), ("//evil.example/trials/x", "/"), ("/trials/../login", "/"), ("", "/")],
)
async def test_a_login_leads_to_the_trial_that_was_asked_for_and_to_no_other_host(
    tmp_path: Path, client: httpx.AsyncClient, wanted: str, leads_to: str
) -> None:
    async with dashboard(tmp_path, Board(), admin_secret=SECRET) as (url, _):
        if wanted == leads_to:
            assert (await client.get(url + wanted)).headers["location"] == f"/login?next={wanted}"
        answer = await client.post(f"{url}/login", params={"next": wanted}, data={"secret": SECRET})
        assert answer.headers["location"] == leads_to


async def test_a_login_as_long_as_a_book_is_not_read(tmp_path: Path, client: httpx.AsyncClient) -> None:
    async with dashboard(tmp_path, Board(), admin_secret=SECRET) as (url, _):
        assert (await client.post(f"{url}/login", content=b"secret=" + b"x" * 100_000)).status_code == 401


async def test_without_a_secret_everybody_who_reaches_it_looks(tmp_path: Path, client: httpx.AsyncClient) -> None:
    async with dashboard(tmp_path, Board()) as (url, _):
        assert (await client.get(f"{url}/")).status_code == 200
        assert (await client.get(f"{url}/login")).status_code == 303


@pytest.mark.parametrize("path", ["/", "/login", "/assets/main.js", "/api/state", "/nowhere", "/assets/none.js"])
async def test_every_answer_keeps_other_origins_out(tmp_path: Path, client: httpx.AsyncClient, path: str) -> None:
    async with dashboard(tmp_path, Board()) as (url, _):
        headers = (await client.get(url + path)).headers
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert "access-control-allow-origin" not in headers
    assert (headers["x-content-type-options"], headers["cache-control"]) == ("nosniff", "no-store")


@pytest.mark.parametrize("name", ["..%2fapp.py", "..%2f..%2fapp.py", "%2e%2e/app.py", "index.html", "login.html", ""])
async def test_assets_are_the_packages_own(tmp_path: Path, client: httpx.AsyncClient, name: str) -> None:
    async with dashboard(tmp_path, Board()) as (url, _):
        assert (await client.get(f"{url}/assets/{name}")).status_code == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize("path", ["/", "/api/state", "/api/events", f"/api/trials/{TRIAL}", "/run", "/flush"])
async def test_nothing_can_be_changed(tmp_path: Path, client: httpx.AsyncClient, method: str, path: str) -> None:
    async with dashboard(tmp_path, Board()) as (url, _):
        assert (await client.request(method, url + path)).status_code in {404, 405}


async def test_a_page_is_told_the_whole_first_and_then_what_changes(tmp_path: Path, client: httpx.AsyncClient) -> None:
    board = Board(live=[running("a")])
    async with dashboard(tmp_path, board) as (url, feed):
        told = events(client, url)
        name, whole = await anext(told)
        assert (name, [row["id"] for row in whole["live"]["set"]]) == ("state", ["a"])
        board.live, board.finished, board.outcomes = [], [ended("a", reward=0.5)], {"Submitted": 1}
        name, change = await anext(told)
        assert (name, change["live"]) == ("change", {"set": [], "gone": ["a"]})
        assert [(row["id"], row["reward"]) for row in change["ended"]] == [("a", 0.5)]
        assert change["outcomes"] == {"Submitted": 1}
        assert feed.watchers == 1
        await told.aclose()
        board.live = [running("b")]
        await eventually(lambda: feed.watchers == 0)


async def test_a_server_that_leaves_ends_its_streams(tmp_path: Path, client: httpx.AsyncClient) -> None:
    async with dashboard(tmp_path, Board()) as (url, feed):
        told = events(client, url)
        await anext(told)
        feed.close()
        assert [event async for event in told] == []


async def test_open_pages_are_bounded(tmp_path: Path, client: httpx.AsyncClient) -> None:
    async with dashboard(tmp_path, Board()) as (url, feed):
        feed.watchers = WATCHERS
        assert (await client.get(f"{url}/api/events")).status_code == 503
        feed.watchers = 0


async def test_a_look_that_fails_is_not_the_last(tmp_path: Path, client: httpx.AsyncClient) -> None:
    class Failing(Board):
        looks = 0

        @override
        async def look(self) -> Any:
            self.looks += 1
            if self.looks == 1:
                raise RuntimeError("the workers are away")
            return await super().look()

    board = Failing(live=[running("a")])
    async with dashboard(tmp_path, board) as (url, feed):
        await eventually(lambda: board.looks >= 2 and bool(feed.state.live))
        assert (await client.get(f"{url}/api/state")).json()["live"]["set"][0]["id"] == "a"


async def test_a_trial_is_shown_with_its_commands_and_the_verifiers_words(
    tmp_path: Path, client: httpx.AsyncClient
) -> None:
    write_task(tmp_path / "tasks")
    spoken = bash_trial(("```sh\necho hello >/app/greeting.txt\n```", "exit code 0\n(no output)"), ("TASK_DONE", ""))
    files = {"run.json": record(), "agent/trajectory.json": spoken, "verifier/test-stdout.txt": "1 passed\n"}
    write_trial(tmp_path, TRIAL, files)
    async with dashboard(tmp_path, Board()) as (url, _):
        shown = (await client.get(f"{url}/api/trials/{TRIAL}")).json()
    assert (shown["answer"]["exit_status"], shown["answer"]["reward"]) == ("Submitted", 1.0)
    assert shown["trajectory"]["turns"][0]["commands"] == ["echo hello >/app/greeting.txt"]
    assert shown["trajectory"]["turns"][0]["outputs"] == [{"text": "(no output)", "exit_code": 0}]
    assert shown["verifier"] == {"test-stdout.txt": "1 passed\n"}
    assert shown["problems"] == []


async def test_no_secret_and_no_solution_is_ever_shown(tmp_path: Path, client: httpx.AsyncClient) -> None:
    write_task(tmp_path / "tasks", solve="echo hello world >/app/greeting.txt")
    leaks = f"{SECRET} Bearer abcdefgh1234 http://10.0.0.1/m/0123456789abcdef0123/v1"
    spoken = bash_trial((f"{leaks}\n```sh\nenv # {leaks}\n```", f"exit code 0\n{leaks}"))
    answer = {"message": leaks, "warnings": [leaks], "exception_type": "E"}
    files = {
        "run.json": record(answer=answer, api_key="key-of-nobody", patch="the gold patch", base_url=f"http://{leaks}"),
        "agent/trajectory.json": spoken,
        "verifier/test-stdout.txt": f"+ echo hello world >/app/greeting.txt\n{leaks}\n",
        "exception.txt": leaks,
    }
    write_trial(tmp_path, TRIAL, files)
    async with dashboard(tmp_path, Board(), admin_secret=SECRET) as (url, _):
        text = (await client.get(f"{url}/api/trials/{TRIAL}", headers={"Authorization": f"Bearer {SECRET}"})).text
    for secret in (SECRET, "abcdefgh1234", "0123456789abcdef0123", "key-of-nobody", "gold patch", "hello world"):
        assert secret not in text
    assert "line of the task's own solution" in text


async def test_what_the_oracle_ran_is_not_shown(tmp_path: Path, client: httpx.AsyncClient) -> None:
    files = {"run.json": record(agent_name="oracle"), "agent/trajectory.json": bash_trial(("```sh\nsolve\n```", ""))}
    write_trial(tmp_path, TRIAL, files)
    async with dashboard(tmp_path, Board()) as (url, _):
        shown = (await client.get(f"{url}/api/trials/{TRIAL}")).json()
    assert shown["trajectory"] is None
    assert "not shown" in shown["problems"][0]


async def test_a_broken_trial_is_shown_as_far_as_it_can_be_read(tmp_path: Path, client: httpx.AsyncClient) -> None:
    answer = {"reward": float("nan"), "agent_metrics": {"turns": float("inf")}}
    files = {"run.json": record(answer=answer), "agent/trajectory.json": "{", "verifier/test-stdout.txt": "\x1b[1mok"}
    write_trial(tmp_path, TRIAL, files)
    async with dashboard(tmp_path, Board()) as (url, _):
        shown = (await client.get(f"{url}/api/trials/{TRIAL}")).json()
    assert shown["verifier"]["test-stdout.txt"] == "ok"
    assert shown["answer"]["reward"] is None
    assert "trajectory.json is no JSON" in shown["problems"][0]


@pytest.mark.parametrize("name", ["none", "..", "%2e%2e%2ftasks", "a" * 300])
async def test_an_unknown_trial_is_404(tmp_path: Path, client: httpx.AsyncClient, name: str) -> None:
    async with dashboard(tmp_path, Board()) as (url, _):
        assert (await client.get(f"{url}/api/trials/{name}")).status_code == 404


async def test_a_volume_that_hangs_holds_up_no_stream(tmp_path: Path, client: httpx.AsyncClient) -> None:
    board, answers = Board(live=[running("a")]), threading.Event()

    def hang() -> tuple[StepReward, ...]:
        answers.wait(60)
        return ()

    async with dashboard(tmp_path, board, steps=hang) as (url, _):
        told = events(client, url)
        await anext(told)
        board.live = []
        assert (await anext(told))[1]["live"]["gone"] == ["a"]
        answers.set()
        await told.aclose()


async def test_steps_come_from_the_records_beside_the_trials(tmp_path: Path, client: httpx.AsyncClient) -> None:
    records = tmp_path / "a1" / "i1" / "trials" / "native.jsonl"
    records.parent.mkdir(parents=True)
    records.write_text('{"rollout_id": 3, "reward": 0.5, "kept": true}\n')
    async with dashboard(tmp_path, Board()) as (url, _):
        told = events(client, url)
        found = [event async for event in until_steps(told)]
        await told.aclose()
    assert [(step["step"], step["mean"]) for step in found[-1]["steps"]] == [(3, 0.5)]


async def until_steps(told: AsyncIterator[tuple[str, dict[str, Any]]]) -> AsyncIterator[dict[str, Any]]:
    async for _, data in told:
        yield data
        if "steps" in data:
            return
