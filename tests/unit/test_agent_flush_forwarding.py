"""A flush reaches every server of the job: the one that serves passes it on to those that drain."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from harborrl_agent_server.peers import FORWARDED_BY, service_of
from harborrl_agent_server.settings import JobIdentity
from support.agent_http import serving
from support.agent_server import MARKS, Stage
from support.held_trials import held

pytestmark = MARKS


class Service:
    """A headless Service: the addresses of the pods behind it."""

    def __init__(self, *urls: str) -> None:
        self.urls = list(urls)

    async def __call__(self) -> list[str]:
        return self.urls


EACH = (("a", 1), ("b", 1))


@contextlib.asynccontextmanager
async def two_versions(tasks: Path, **changes: Any) -> AsyncIterator[tuple[Stage, Stage, dict[str, Any]]]:
    """A server that serves and one that drains, each with a trial of the sessions a and b, behind one Service."""
    changes = {**changes, "servers": (service := Service())}
    trials = tasks.parent / "trials"
    async with (
        held(tasks, *EACH, slots=2, pod_name="new", trials_dir=trials / "new", **changes) as (new, _, here),
        held(tasks, *EACH, slots=2, pod_name="old", trials_dir=trials / "old", **changes) as (old, _, there),
    ):
        old.runs.draining = True
        service.urls = [new.url, old.url]
        yield new, old, {"here": here, "there": there}


async def flush(server: Stage, *ids: str, **headers: str) -> dict[str, Any]:
    body = {"session_server_instance_ids": list(ids)}
    answer = await server.client.post(f"{server.url}/flush", json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


async def test_a_flush_ends_the_sessions_trials_on_both_versions_and_counts_each_once(tasks: Path) -> None:
    async with two_versions(tasks) as (new, old, runs):
        told = await flush(new, "a")
        assert (told["cancelled"], told["ids"], told["unreached"]) == (2, ["a"], 0)
        assert [(await runs[where]["a"][0])["exit_status"] for where in ("here", "there")] == ["Aborted", "Aborted"]
        assert [len(server.runs.live) for server in (new, old)] == [1, 1]


async def test_a_client_that_flushes_every_server_itself_counts_no_trial_twice(tasks: Path) -> None:
    async with two_versions(tasks) as (new, old, _):
        told = await asyncio.gather(flush(new, "a"), flush(old, "a"))
    assert sum(answer["cancelled"] for answer in told) == 2


async def test_a_flush_that_was_passed_on_is_passed_no_further(tasks: Path) -> None:
    async with two_versions(tasks) as (new, old, _):
        assert (await flush(old, "a", **{FORWARDED_BY: "new"}))["cancelled"] == 1
        assert len(new.runs.live) == 2


async def test_the_secret_goes_along(tasks: Path) -> None:
    async with two_versions(tasks, admin_secret="right") as (new, _, __):
        assert (await flush(new, "a", Authorization="Bearer right"))["cancelled"] == 2


async def test_a_server_that_has_gone_has_nothing_to_flush(tasks: Path) -> None:
    gone = Service("http://127.0.0.1:9")
    async with held(tasks, ("a", 1), slots=1, servers=gone) as (server, _, __):
        told = await flush(server, "a")
        assert (told["cancelled"], told["unreached"]) == (1, 0)


async def test_a_server_that_does_not_take_the_flush_is_counted(tasks: Path) -> None:
    async def broken(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 500, "headers": []})
        await send({"type": "http.response.body", "body": b"no"})

    service = Service()
    async with serving(application(broken)) as url, held(tasks, ("a", 1), slots=1, servers=service) as (server, _, __):
        service.urls = [url]
        told = await flush(server, "a")
        assert (told["cancelled"], told["unreached"]) == (1, 1)


def application(handler: Any) -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await handler(scope, receive, send)

    return app


async def test_a_server_without_a_job_or_whose_service_has_no_name_knows_nobody_else() -> None:
    assert await service_of(JobIdentity(), 30000)() == []
    assert await service_of(JobIdentity("nowhere", "no-such-job", "u"), 30000)() == []
