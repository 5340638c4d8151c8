"""One session, one trial: whoever asks again gets the same answer."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from harborrl_agent_server.contract import RunRequest
from harborrl_agent_server.sessions import run_id, trial_name
from support.agent_http import eventually, replies
from support.agent_server import MARKS, Stage, stage
from support.agent_tasks import write_task
from support.held_trials import Gate, held

pytestmark = MARKS


def asking(url: str | None, instance: str | None = None) -> RunRequest:
    return RunRequest(instance_id="t", base_url=url, session_server_instance_id=instance)


def test_a_session_is_known_by_its_server_and_its_name() -> None:
    known = run_id(asking("http://a:1/sessions/s/v1", "i"))
    assert known == run_id(asking("http://other-name:2/sessions/s/v1/", "i"))
    others = [asking("http://a:1/sessions/t/v1", "i"), asking("http://a:1/sessions/s/v1", "j")]
    others += [asking("http://a:1/sessions/s/v1"), asking("http://b:1/sessions/s/v1")]
    assert len({known, *map(run_id, others)}) == 5


@pytest.mark.parametrize("url", [None, "http://model:8000/v1", "http://a/sessions//v1", "not a url", "http://[/v1"])
def test_an_address_that_names_no_session_is_another_trial_each_time(url: str | None) -> None:
    assert run_id(asking(url)) != run_id(asking(url))


async def test_a_session_that_is_asked_for_twice_at_once_has_one_trial_and_one_answer(tasks: Path) -> None:
    gate = Gate()
    async with stage(tasks, gate, max_concurrent=4) as server:
        body = server.body()
        both = [asyncio.ensure_future(post(server, body)) for _ in range(2)]
        await gate.until(1)
        await eventually(lambda: [run.clients for run in server.runs.live] == [2])
        gate.opened.set()
        first, second = [answer.json() for answer in await asyncio.gather(*both)]
        assert (len(server.session.requests), server.runs.outcomes.total()) == (1, 1)
    assert first == second


async def test_a_session_that_is_asked_for_again_later_gets_the_recorded_answer(tasks: Path) -> None:
    async with stage(tasks, replies("TASK_DONE")) as server:
        body = server.body()
        first = (await post(server, body)).json()
        again = (await post(server, body)).json()
        assert (len(server.session.requests), server.runs.outcomes.total()) == (1, 1)
    assert again == first


async def test_a_server_that_was_restarted_knows_the_answers_of_before(tasks: Path) -> None:
    async with stage(tasks, replies("TASK_DONE")) as server:
        body = server.body()
        first = (await post(server, body)).json()
    async with stage(tasks, replies("TASK_DONE")) as server:
        assert (await post(server, body)).json() == first
        assert server.runs.outcomes.total() == 0


async def test_a_trial_that_a_killed_server_began_is_not_run_again_in_its_session(tasks: Path) -> None:
    async with stage(tasks, replies("TASK_DONE")) as server:
        body = server.body()
        known = RunRequest.model_validate(body)
        (server.settings.trials_dir / trial_name(known.instance_id, run_id(known))).mkdir(parents=True)
        answer = (await post(server, body)).json()
        assert server.session.requests == []
        assert (await server.health())["in_flight"] == 0
    assert (answer["exit_status"], answer["infra_failure"]) == ("ServerError", True)
    assert "open another session" in answer["message"]


async def test_a_trial_that_was_never_begun_may_be_asked_for_again(tasks: Path) -> None:
    async with stage(tasks, replies("TASK_DONE")) as server:
        body = server.body(deadline_s=1)
        assert (await post(server, body)).json()["exit_status"] == "QueueTimeout"
        assert (await post(server, {**body, "deadline_s": 7200})).json()["exit_status"] == "Submitted"
        bad = server.body(instance_id="bad")
        (write_task(tasks, "bad") / "task.toml").write_text("not toml [")
        assert (await post(server, bad)).json()["exit_status"] == "TaskNotFound"
        (tasks / "bad" / "task.toml").write_text('version = "1.0"\n[environment]\nworkdir = "/app"\n')
        assert (await post(server, bad)).json()["exit_status"] == "Submitted"


async def test_a_session_of_a_live_trial_is_not_lent_to_another_task(tasks: Path) -> None:
    write_task(tasks, "other")
    gate = Gate()
    async with stage(tasks, gate) as server:
        body = server.body()
        first = asyncio.ensure_future(post(server, body))
        await gate.until(1)
        refused = await post(server, {**body, "instance_id": "other"})
        gate.opened.set()
        await first
    assert (refused.status_code, "write-greeting" in refused.text) == (409, True)


async def test_a_trial_goes_on_while_one_of_its_clients_waits(tasks: Path) -> None:
    gate = Gate()
    async with stage(tasks, gate) as server:
        body = server.body()
        first, second = [asyncio.ensure_future(post(server, body)) for _ in range(2)]
        await gate.until(1)
        await eventually(lambda: [run.clients for run in server.runs.live] == [2])
        first.cancel()
        await eventually(lambda: [run.clients for run in server.runs.live] == [1])
        gate.opened.set()
        assert (await second).json()["exit_status"] == "Submitted"


async def test_a_leaving_server_still_answers_for_the_sessions_that_it_runs(tasks: Path) -> None:
    async with held(tasks, ("a", 1), slots=1) as (server, gate, runs):
        (run,) = server.runs.live
        server.runs.draining = True
        again = asyncio.ensure_future(post(server, run.request.model_dump()))
        await eventually(lambda: run.clients == 2)
        gate.opened.set()
        assert (await again).json() == await runs["a"][0]


async def test_a_record_that_cannot_be_read_is_no_answer(tasks: Path) -> None:
    async with stage(tasks, replies("TASK_DONE")) as server:
        body = server.body()
        first = (await post(server, body)).json()
        record = server.settings.trials_dir / first["trial_name"] / "run.json"
        for broken in ("", "{", json.dumps({"answer": {"exit_status": "Nonsense"}}), "[]"):
            record.write_text(broken)
            assert (await post(server, body)).json()["exit_status"] == "ServerError"


async def post(server: Stage, body: dict[str, Any]) -> httpx.Response:
    return await server.client.post(f"{server.url}/run", json=body)
