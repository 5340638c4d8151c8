"""What a server does that is told to stop, by what the API server says of its job and its Deployment."""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from harborrl_agent_server.runs import Runs
from harborrl_agent_server.sandboxes.cluster import KubeError, KubeUnreachableError
from harborrl_agent_server.sandboxes.standing import Belonging
from harborrl_agent_server.scope import Standing
from harborrl_agent_server.settings import JobIdentity
from harborrl_agent_server.stopping import drain, known, leave
from support.agent_http import SessionServer, eventually, replies, serving
from support.agent_server import MARKS, stage
from support.held_trials import Gate, held
from support.server_process import asked, process

pytestmark = MARKS

JOB = JobIdentity("research", "run", "job-1")
JOB_PATH = "/apis/harborrl.dev/v1alpha1/namespaces/research/harborrljobs/run"
DEPLOYMENT_PATH = "/apis/apps/v1/namespaces/research/deployments/run-agent-1a2b3c4d"


class Api:
    """An API server that holds these objects; `silent` makes it answer nothing."""

    def __init__(self) -> None:
        self.metadata: dict[str, dict[str, Any]] = {}
        self.silent = False
        self.job, self.deployment = {"uid": "job-1"}, {"uid": "d-1"}

    @property
    def job(self) -> dict[str, Any] | None:
        return self.metadata.get(JOB_PATH)

    @job.setter
    def job(self, metadata: dict[str, Any] | None) -> None:
        self._put(JOB_PATH, metadata)

    @property
    def deployment(self) -> dict[str, Any] | None:
        return self.metadata.get(DEPLOYMENT_PATH)

    @deployment.setter
    def deployment(self, metadata: dict[str, Any] | None) -> None:
        self._put(DEPLOYMENT_PATH, metadata)

    def _put(self, path: str, metadata: dict[str, Any] | None) -> None:
        self.metadata.pop(path, None)
        if metadata is not None:
            self.metadata[path] = metadata

    async def get(self, path: str) -> dict[str, Any]:
        if self.silent:
            raise KubeUnreachableError(path)
        if path not in self.metadata:
            raise KubeError(404, "NotFound", path)
        return {"metadata": self.metadata[path]}


async def belonging(api: Api, deployment: str = "run-agent-1a2b3c4d", job: JobIdentity = JOB) -> Belonging:
    """Of a server that was started while everything was there."""
    found = Belonging(api.get, job, deployment)
    await found.remember()
    return found


GONE: dict[str, tuple[dict[str, Any] | None, dict[str, Any] | None, Standing]] = {
    "nothing is gone": ({"uid": "job-1"}, {"uid": "d-1"}, Standing.ALONE),
    "the Deployment is gone": ({"uid": "job-1"}, None, Standing.REPLACED),
    "the Deployment is going": ({"uid": "job-1"}, {"uid": "d-1", "deletionTimestamp": "now"}, Standing.REPLACED),
    "a change was taken back, so it is another one": ({"uid": "job-1"}, {"uid": "d-2"}, Standing.REPLACED),
    "the job is gone": (None, {"uid": "d-1"}, Standing.ORPHANED),
    "the job waits for its dependents to go": ({"uid": "job-1", "deletionTimestamp": "now"}, None, Standing.ORPHANED),
    "the job is another one of the same name": ({"uid": "job-2"}, None, Standing.ORPHANED),
}


@pytest.mark.parametrize("case", GONE)
async def test_a_server_knows_why_it_is_told_to_stop(case: str) -> None:
    api = Api()
    ours = await belonging(api)
    api.job, api.deployment, expected = GONE[case]
    assert await ours.standing() is expected


async def test_a_server_without_a_job_or_whose_deployment_was_never_seen_takes_its_end_for_its_pods() -> None:
    api = Api()
    assert await (await belonging(api, job=JobIdentity())).standing() is Standing.ALONE
    api.deployment = None
    assert await (await belonging(api)).standing() is Standing.ALONE


async def test_an_api_server_that_does_not_answer_leaves_it_unknown() -> None:
    api = Api()
    ours = await belonging(api)
    api.silent = True
    assert await ours.standing() is Standing.UNKNOWN


async def test_an_unknown_standing_is_asked_for_again_and_not_for_ever() -> None:
    answers = iter([Standing.UNKNOWN, Standing.REPLACED])
    assert await known(_once(answers), limit_s=20) is Standing.REPLACED
    assert await known(_always(Standing.UNKNOWN), limit_s=0.01) is Standing.UNKNOWN


def _always(standing: Standing) -> Callable[[], Awaitable[Standing]]:
    async def ask() -> Standing:
        return standing

    return ask


def _once(answers: Any) -> Callable[[], Awaitable[Standing]]:
    async def ask() -> Standing:
        found: Standing = next(answers)
        return found

    return ask


async def test_a_replaced_server_lets_its_trials_end_and_takes_no_new_one(tasks: Path) -> None:
    async with held(tasks, ("a", 2), slots=2, drain_s=120.0) as (server, gate, runs):
        leaving = asyncio.ensure_future(leave(server.runs, _always(Standing.REPLACED), server.settings))
        await _refusing(server.runs)
        refused = await server.client.post(f"{server.url}/run", json=server.body())
        assert (refused.status_code, refused.headers["connection"]) == (503, "close")
        ready = await server.client.get(f"{server.url}/ready")
        assert (ready.status_code, (await server.health())["status"]) == (503, "draining")
        assert not leaving.done()
        gate.opened.set()
        answers = await asyncio.gather(*runs["a"])
        await asyncio.wait_for(leaving, 20)
    assert [answer["exit_status"] for answer in answers] == ["Submitted", "Submitted"]


async def _refusing(runs: Runs) -> None:
    while not runs.draining:  # noqa: ASYNC110 - set by the task that was started before
        await asyncio.sleep(0)


REPLACED_SERVER = """
import sys
from harborrl_agent_server.sandboxes.local import LocalProvider
from harborrl_agent_server.scope import Standing
from harborrl_agent_server.serve import run
from harborrl_agent_server.settings import settings_from

class Replaced(LocalProvider):
    async def standing(self):
        return Standing.REPLACED

sys.exit(run(settings_from(sys.argv[1:]), Replaced()))
"""


async def test_sigterm_lets_a_replaced_process_answer_its_last_trial_and_then_leave(
    tasks: Path, tmp_path: Path
) -> None:
    gate = Gate()
    async with process(tasks, tmp_path, ["-c", REPLACED_SERVER]) as (server, url), asked(url, gate) as run:
        server.send_signal(signal.SIGTERM)
        async with httpx.AsyncClient(timeout=60) as client, asyncio.timeout(20):
            while (await client.get(f"{url}/ready")).status_code == 200:  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.02)
            refused = await client.post(f"{url}/run", json={"instance_id": "write-greeting"})
        assert (refused.status_code, refused.headers["connection"], run.done()) == (503, "close", False)
        gate.opened.set()
        answer = (await run).json()
        async with asyncio.timeout(20):
            code = await server.wait()
    assert (answer["exit_status"], code) == ("Submitted", 0)


async def test_a_flush_still_ends_the_trials_of_a_replaced_server(tasks: Path) -> None:
    async with held(tasks, ("a", 1), ("b", 1), slots=2, drain_s=120.0) as (server, gate, runs):
        leaving = asyncio.ensure_future(leave(server.runs, _always(Standing.REPLACED), server.settings))
        await _refusing(server.runs)
        told = await server.client.post(f"{server.url}/flush", json={"session_server_instance_id": "a"})
        assert told.json()["cancelled"] == 1
        gate.opened.set()
        await asyncio.wait_for(leaving, 20)
        statuses = [(await runs[name][0])["exit_status"] for name in ("a", "b")]
    assert statuses == ["Aborted", "Submitted"]


@pytest.mark.parametrize("standing", [Standing.ALONE, Standing.ORPHANED])
async def test_a_server_whose_pod_alone_is_ended_or_whose_job_is_gone_cancels_its_trials(
    tasks: Path, standing: Standing
) -> None:
    async with held(tasks, ("a", 1), slots=1, drain_s=120.0) as (server, _, runs):
        await leave(server.runs, _always(standing), server.settings)
        assert (await runs["a"][0])["exit_status"] == "Aborted"


async def test_a_server_that_cannot_learn_its_standing_cancels_its_trials_while_it_can_still_answer(
    tasks: Path,
) -> None:
    async with held(tasks, ("a", 1), slots=1, drain_s=120.0) as (server, _, runs):
        await leave(server.runs, _always(Standing.UNKNOWN), server.settings, ask_s=0.01)
        assert (await runs["a"][0])["exit_status"] == "Aborted"


async def test_a_drain_ends_when_the_job_goes_away_meanwhile(tasks: Path) -> None:
    answers = iter([Standing.REPLACED, Standing.ORPHANED])
    async with held(tasks, ("a", 1), slots=1) as (server, _, __):
        await drain(server.runs, _once(answers), limit_s=120, look_s=0.01)
        assert len(server.runs.live) == 1


async def test_a_drain_ends_when_its_time_is_spent_and_the_rest_is_cancelled(tasks: Path) -> None:
    async with held(tasks, ("a", 1), slots=1, drain_s=0.05) as (server, _, runs):
        await leave(server.runs, _always(Standing.REPLACED), server.settings)
        assert (await runs["a"][0])["exit_status"] == "Aborted"


async def test_a_large_request_to_a_leaving_server_is_read_before_it_is_refused(tasks: Path) -> None:
    """Refused in the middle of its body, the client would see a broken connection and not send the trial again."""
    async with stage(tasks, replies("")) as server:
        server.runs.draining = True
        body = {**server.body(), "patch": "x" * 8_000_000}
        async with httpx.AsyncClient(timeout=60) as client:
            refused = await client.post(f"{server.url}/run", json=body)
    assert refused.status_code == 503


async def test_a_server_is_ready_while_it_takes_trials(tasks: Path) -> None:
    async with stage(tasks, replies("")) as server:
        assert (await server.client.get(f"{server.url}/ready")).status_code == 200


async def test_a_killed_server_leaves_no_sandbox_and_its_successor_does_not_run_its_trial_again(
    tasks: Path, tmp_path: Path
) -> None:
    program = ["-m", "harborrl_agent_server"]
    session = SessionServer(gate := Gate())
    async with serving(session.app) as session_url, httpx.AsyncClient(timeout=300) as client:
        body = {"instance_id": "write-greeting", "base_url": f"{session_url}/sessions/s/v1"}
        async with process(tasks, tmp_path, program) as (server, url):
            run = asyncio.ensure_future(client.post(f"{url}/run", json=body))
            await gate.until(1)
            box = children(server.pid)
            server.kill()
            with pytest.raises(httpx.HTTPError):
                await run
        await eventually(lambda: not any(Path("/proc", pid).exists() for pid in box))
        gate.opened.set()
        async with process(tasks, tmp_path, program) as (_, url):
            answer = (await client.post(f"{url}/run", json=body)).json()
            fresh = {**body, "base_url": f"{session_url}/sessions/t/v1"}
            again = (await client.post(f"{url}/run", json=fresh)).json()
    assert box
    assert (answer["exit_status"], answer["infra_failure"]) == ("ServerError", True)
    assert (again["exit_status"], len(session.requests)) == ("Submitted", 2)


def children(pid: int) -> list[str]:
    return Path("/proc", str(pid), "task", str(pid), "children").read_text().split()
