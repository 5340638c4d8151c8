"""What several workers say, as one answer; which of them has a session; whose a gateway's token is."""

import asyncio
import contextlib
import random
import socket
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from harborrl_agent_server.admission import Slots
from harborrl_agent_server.contract import FlushResponse, Health, Warm
from harborrl_agent_server.dispatch import merging
from harborrl_agent_server.dispatch.app import create_app
from harborrl_agent_server.dispatch.choosing import request_of, worker_for, worker_of
from harborrl_agent_server.dispatch.gateway import gateway_app
from harborrl_agent_server.dispatch.remains import sweep
from harborrl_agent_server.dispatch.workers import Workers
from harborrl_agent_server.gateway import BODY_LIMIT, Gateway, address_of, opened, serving
from harborrl_agent_server.gateway_connections import Connections
from harborrl_agent_server.gateway_session import ModelSession, Upstream
from harborrl_agent_server.metrics import Metrics
from harborrl_agent_server.peers import Peers
from harborrl_agent_server.settings import Settings, Worker
from support import agent_http


def health(status: str = "ok", **said: Any) -> Health:
    own = {"version": "1", "instance": "pod-w0", "capacity": 4, "in_flight": 1, "queued": 0, "free": 3}
    return Health.model_validate(
        {"status": status, "oldest_trial_s": None, "budgets": {}, "outcomes": {}, **own, **said}
    )


def merged(*answers: Health, taken: int = 0, workers: int = 2) -> Health:
    slots = Slots(4)
    slots.taken = taken
    return merging.health(answers, slots=slots, workers=workers, instance="pod", outcomes={"Submitted": 3})


def test_health_tells_of_the_pods_own_slots_whatever_a_silent_worker_holds_of_them() -> None:
    found = merged(health(oldest_trial_s=3), taken=3)
    assert (found.capacity, found.in_flight, found.free, found.oldest_trial_s) == (4, 3, 1, 3)
    assert (found.status, found.instance, found.outcomes) == ("degraded", "pod", {"Submitted": 3})


def test_warm_sandboxes_of_all_workers_are_told_together() -> None:
    found = merged(health(warm=Warm(ready=2, cold_starts=1)), health(warm=Warm(ready=1, starting=4, warm_starts=5)))
    assert found.warm == Warm(ready=3, starting=4, warm_starts=5, cold_starts=1)


@pytest.mark.parametrize(
    ("findings", "told"),
    [
        (["unknown yet", "enforced: refused"], "enforced: refused"),
        (["enforced: a", "unenforced: b"], "enforced: a; unenforced: b"),
        (["unknown yet", "unknown yet"], "unknown yet"),
    ],
)
def test_what_one_worker_found_of_network_policies_is_told_whoever_is_asked_first(
    findings: list[str], told: str
) -> None:
    for order in (findings, findings[::-1]):
        found = merged(*(health(network_policies=finding) for finding in order)).network_policies
        assert sorted(found.split("; ")) == sorted(told.split("; "))


@pytest.mark.parametrize(
    ("said", "workers", "status"),
    [(["ok", "degraded"], 2, "degraded"), (["degraded", "draining"], 2, "draining"), (["ok"], 2, "degraded")],
)
def test_the_worst_of_the_workers_speaks_for_all_and_a_silent_one_is_a_degradation(
    said: list[str], workers: int, status: str
) -> None:
    assert merged(*(health(one) for one in said), workers=workers).status == status


def test_flushes_are_added() -> None:
    one = FlushResponse(cancelled=2, pending=1, ids=["a"], unreached=0)
    two = FlushResponse(cancelled=1, pending=0, ids=["a"], unreached=1)
    found = merging.flushed(["b", "a"], [one, two])
    assert (found.cancelled, found.pending, found.unreached, found.ids) == (3, 1, 1, ["a", "b"])


def test_a_session_is_always_the_same_workers_and_sessions_are_spread() -> None:
    spread = Counter(worker_of(f"{number}", 4) for number in range(400))
    assert min(spread.values()) > 60
    body = b'{"instance_id": "t", "base_url": "http://a/sessions/7/v1"}'
    assert len({worker_for(request_of(body), 4) for _ in range(20)}) == 1


def test_a_worker_more_moves_a_sessions_worker_only_to_itself() -> None:
    for number in range(200):
        before, after = worker_of(f"{number}", 3), worker_of(f"{number}", 4)
        assert after in {before, 3}


def test_what_names_no_session_goes_to_any_worker() -> None:
    random.seed(7)
    bodies = (b'{"instance_id": "t"}', b"{")
    assert all({worker_for(request_of(body), 2) for _ in range(50)} == {0, 1} for body in bodies)


def test_each_worker_has_sandboxes_of_its_own_name(tmp_path: Path) -> None:
    names = {
        Settings(tmp_path, tmp_path, pod_name="p" * 70, worker=Worker(index, tmp_path)).server_name for index in (0, 1)
    }
    assert {len(name) for name in names} == {63}
    assert {name[-3:] for name in names} == {"-w0", "-w1"}


async def test_the_dispatcher_learns_what_to_hide_of_every_run_that_it_hands_on(tmp_path: Path) -> None:
    workers, known = Workers(2, tmp_path, [], {}), list[str]()
    settings = Settings(tmp_path, tmp_path, workers=2)
    async with httpx.AsyncClient(timeout=60) as client:
        peers = Peers(settings, client)
        app = create_app(settings, workers, peers, slots=Slots(1), metrics=Metrics(), learn=known.append)
        async with agent_http.serving(app) as front:
            taken = await client.post(f"{front}/run", json={"instance_id": "t", "api_key": "sk-canary"})
            malformed = await client.post(f"{front}/run", content="{")
            health = await client.get(f"{front}/health")
    await workers.close()
    assert known == ["sk-canary"]
    assert [answer.status_code for answer in (taken, malformed, health)] == [503, 503, 503]  # no worker is up


@contextlib.asynccontextmanager
async def front_of(gateway: Gateway, folder: Path) -> AsyncIterator[str]:
    """The dispatcher's address of a gateway that is the second worker's; the first one is not there."""
    workers = Workers(2, folder, [], {})
    gateway.address = "http://gateway"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(workers.children[1].worker.gateway_socket))
    connections = Connections()
    try:
        with opened("127.0.0.1", 0) as door:
            front = serving(gateway_app(workers, connections), door, connections)
            async with serving(gateway.app(), listener, gateway.connections), front:
                yield address_of(door, "127.0.0.1")
    finally:
        await workers.close()


async def test_a_token_of_the_gateway_leads_to_the_worker_that_gave_it(tmp_path: Path) -> None:
    async with httpx.AsyncClient(timeout=60) as client:
        gateway = Gateway(lambda: client, "1-")
        session = ModelSession(Upstream("http://nowhere/v1", "policy"), client, {}, [])
        async with front_of(gateway, tmp_path) as front:
            with gateway.admitted(session) as url:
                path = url.removeprefix("http://gateway")
                found = await client.get(f"{front}{path}/models")
                guessed = await client.get(f"{front}/m/1-guess/v1/models")
                of_nobody = await client.get(f"{front}/m/9-guess/v1/models")
                of_a_dead_one = await client.get(f"{front}/m/0-guess/v1/models")
            over = await client.get(f"{front}{path}/models")
    assert found.json()["data"][0]["id"] == "policy"
    assert (guessed.status_code, of_nobody.status_code, over.status_code) == (401, 401, 410)
    assert of_a_dead_one.json()["error"]["code"] == "model_endpoint_failed"


@pytest.mark.parametrize("token", ["1-guess", "1-guess%3Fx", "9" * 5000, "1"])
async def test_of_who_has_no_token_no_body_is_kept(tmp_path: Path, token: str) -> None:
    """One that is too large is not even told so."""
    async with httpx.AsyncClient(timeout=60) as client, front_of(Gateway(lambda: client, "1-"), tmp_path) as front:
        answer = await client.post(f"{front}/m/{token}/v1/chat/completions", content=b" " * (BODY_LIMIT + 1))
    assert answer.status_code == 401


async def test_folders_of_dispatchers_that_were_killed_are_swept_and_no_others(tmp_path: Path) -> None:
    for name in ("harborrl-workers-dead", "harborrl-workers-live", "harborrl-workers-young", "other"):
        (tmp_path / name).mkdir()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "harborrl-workers-dead" / "slots"))
    live = await asyncio.start_unix_server(
        lambda _, writer: writer.close(), tmp_path / "harborrl-workers-live" / "slots"
    )
    sweep(tmp_path)
    live.close()
    left = sorted(path.name for path in tmp_path.iterdir())  # noqa: ASYNC240 - a look at this machine
    assert left == ["harborrl-workers-live", "harborrl-workers-young", "other"]
