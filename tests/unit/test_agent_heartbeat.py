"""A trial takes hours; proxies and clients between must neither cut it nor be misled by what keeps it alive."""

import asyncio
from pathlib import Path

import httpx
import pytest

from harborrl_trainer.rollout.agent_client import AgentClient, AgentServerUnreachable
from support.agent_http import eventually, replies
from support.agent_server import MARKS, stage
from support.held_trials import Gate, held
from support.idle_proxy import idle_proxy

pytestmark = MARKS

IDLE_S = 1.0
BEAT_S = 0.05


async def test_a_proxy_that_cuts_silent_connections_leaves_a_trial_with_heartbeats_alone(tasks: Path) -> None:
    gate = Gate()
    async with (
        stage(tasks, gate, heartbeat_s=BEAT_S) as server,
        idle_proxy(server.url, IDLE_S) as (url, proxy),
        httpx.AsyncClient(timeout=600) as client,
    ):
        run = asyncio.ensure_future(client.post(f"{url}/run", json=server.body()))
        # Each heartbeat is one chunk; by then the trial has been silent for longer than the proxy bears.
        await eventually(lambda: proxy.received.count(b"1\r\n \r\n") > 2 * IDLE_S / BEAT_S)
        gate.opened.set()
        answer, cut = await run, proxy.cut
    assert (answer.status_code, answer.json()["exit_status"], cut) == (200, "Submitted", 0)
    assert answer.content.startswith(b" ")
    assert answer.headers["content-type"] == "application/json"


async def test_without_heartbeats_the_same_proxy_cuts_it(tasks: Path) -> None:
    gate = Gate()
    async with (
        stage(tasks, gate, heartbeat_s=0) as server,
        idle_proxy(server.url, IDLE_S) as (url, _),
        httpx.AsyncClient(timeout=600) as client,
    ):
        with pytest.raises(httpx.RemoteProtocolError):
            await client.post(f"{url}/run", json=server.body())
        gate.opened.set()
        await eventually(lambda: server.runs.outcomes.total() == 1)


async def test_our_client_reads_an_answer_after_heartbeats(tasks: Path) -> None:
    gate = Gate()
    async with stage(tasks, gate, heartbeat_s=BEAT_S) as server:
        client = AgentClient(server.url, ceiling_s=7200)
        run = asyncio.ensure_future(client.run(server.body()))
        await gate.until(1)
        gate.opened.set()
        assert (await run).exit_status == "Submitted"
        await client.close()


async def test_a_server_that_dies_after_a_heartbeat_has_not_answered(tasks: Path) -> None:
    gate = Gate()
    async with stage(tasks, gate, heartbeat_s=BEAT_S) as server, idle_proxy(server.url, 120) as (url, proxy):
        client = AgentClient(url, ceiling_s=7200)
        run = asyncio.ensure_future(client.run(server.body()))
        await eventually(lambda: b"1\r\n \r\n" in proxy.received)
        proxy.die()
        with pytest.raises(AgentServerUnreachable):
            await run
        await client.close()


async def test_a_trial_that_is_over_before_the_first_heartbeat_is_answered_plainly(tasks: Path) -> None:
    async with stage(tasks, replies("TASK_DONE"), heartbeat_s=60) as server:
        answer = await server.client.post(f"{server.url}/run", json=server.body())
    assert int(answer.headers["content-length"]) == len(answer.content)
    assert answer.content.startswith(b"{")


@pytest.mark.parametrize("heartbeat_s", [0, BEAT_S])
async def test_what_is_no_trial_keeps_its_status_code(tasks: Path, heartbeat_s: float) -> None:
    async with stage(tasks, replies(""), heartbeat_s=heartbeat_s) as server:
        assert (await server.client.post(f"{server.url}/run", content=b"{")).status_code == 422
        server.runs.draining = True
        assert (await server.client.post(f"{server.url}/run", json=server.body())).status_code == 503


async def test_a_client_that_leaves_between_heartbeats_frees_its_slot(tasks: Path) -> None:
    async with held(tasks, ("a", 1), ("b", 1), slots=1, heartbeat_s=BEAT_S) as (server, gate, runs):
        runs["a"][0].cancel()
        await asyncio.gather(*runs["a"], return_exceptions=True)
        await eventually(lambda: server.runs.outcomes["Aborted"] == 1 and gate.waiting == 1)
        gate.opened.set()
        assert (await runs["b"][0])["exit_status"] == "Submitted"
