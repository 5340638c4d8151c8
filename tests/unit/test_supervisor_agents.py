"""The supervisor's words with agent servers and session servers: every server that may hold a trial is flushed."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from harborrl_trainer.supervisor.agents import FlushFailedError, HttpAgents, ServerLoad
from support import jobs

HEALTH = json.loads((jobs.CONTRACTS / "health.json").read_text())
type Answer = Callable[[httpx.Request], httpx.Response]


def agents(
    tmp_path: Path, answer: Answer, addresses: Sequence[str] = (), **changes: Any
) -> tuple[HttpAgents, list[str]]:
    asked: list[str] = []

    def handle(request: httpx.Request) -> httpx.Response:
        asked.append(f"{request.method} {request.url}")
        return answer(request)

    async def resolve(host: str, port: int) -> Sequence[str]:
        assert (host, port) == ("quickstart-agents.research.svc", 30000)
        return addresses

    client = httpx.AsyncClient(transport=httpx.MockTransport(handle))
    return HttpAgents(jobs.job(tmp_path, **changes), client, resolve), asked


async def test_the_load_is_read_from_the_contracts_health(tmp_path: Path) -> None:
    server, _ = agents(tmp_path, lambda _: httpx.Response(200, json=HEALTH))
    assert await server.load() == ServerLoad(8, 3, 12.4)


@pytest.mark.parametrize("body", ["[]", "{}", "no", '{"capacity": null, "in_flight": 1}'])
async def test_a_server_that_says_something_else_has_no_load(tmp_path: Path, body: str) -> None:
    server, _ = agents(tmp_path, lambda _: httpx.Response(200, text=body))
    assert await server.load() is None


async def test_session_servers_are_asked_on_each_of_their_ports_and_the_silent_are_left_out(tmp_path: Path) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.port == 30001:
            raise httpx.ConnectError("refused", request=request)
        return httpx.Response(200, json={"status": "ok", "session_server_instance_id": f"s-{request.url.port}"})

    server, asked = agents(tmp_path, answer, ports__sessionCount=3)
    assert await server.sessions() == {"s-30000", "s-30002"}
    assert all(url.startswith("GET http://127.0.0.1:") for url in asked)


async def test_every_pod_of_an_own_server_is_flushed_so_that_a_draining_one_is_not_missed(tmp_path: Path) -> None:
    server, asked = agents(tmp_path, lambda _: httpx.Response(200, json={"cancelled": 2}), ("10.0.0.1", "fd00::1"))
    assert await server.flush({"s"}) == 4
    assert asked == ["POST http://10.0.0.1:30000/flush", "POST http://[fd00::1]:30000/flush"]


async def test_one_pod_that_is_gone_does_not_make_a_flush_fail_and_all_of_them_do(tmp_path: Path) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.host == "10.0.0.2":
            raise httpx.ConnectTimeout("late", request=request)
        return httpx.Response(200, json={"cancelled": 1})

    server, _ = agents(tmp_path, answer, ("10.0.0.1", "10.0.0.2"))
    assert await server.flush({"s"}) == 1
    server, _ = agents(tmp_path, answer, ("10.0.0.2",))
    with pytest.raises(FlushFailedError, match="ConnectTimeout late"):
        await server.flush({"s"})


async def test_without_addresses_or_for_a_foreign_server_the_url_is_flushed(tmp_path: Path) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        assert json.loads(request.content) == {"session_server_instance_ids": ["a", "b"]}
        return httpx.Response(200, json={"cancelled": 0})

    foreign = {"agentServer__owned": False, "agentServer__url": "https://agents.team.svc/x/"}
    for changes in ({}, foreign):
        server, asked = agents(tmp_path, answer, (), **changes)
        assert await server.flush({"b", "a"}) == 0
        assert asked[0] in (
            "POST http://quickstart-agent.research.svc:30000/flush",
            "POST https://agents.team.svc/x/flush",
        )


async def test_the_admin_secret_opens_the_flush_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str | None] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers.get("Authorization"))
        return httpx.Response(200, json=HEALTH | {"cancelled": 0})

    monkeypatch.setenv("HARBOR_ADMIN_SECRET", "open")
    server, _ = agents(tmp_path, answer)
    await server.load()
    await server.flush({"s"})
    assert seen == [None, "Bearer open"]
