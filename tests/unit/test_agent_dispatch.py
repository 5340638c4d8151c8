"""What several workers say, as one answer; which of them has a session; whose a gateway's token is."""

import random
import socket
from collections import Counter
from pathlib import Path

import httpx
import pytest
from prometheus_client import generate_latest

from harborrl_agent_server.contract import ExitStatus, FlushResponse, Health, RunResponse
from harborrl_agent_server.dispatch import merging
from harborrl_agent_server.dispatch.app import gateway_app
from harborrl_agent_server.dispatch.choosing import worker_for, worker_of
from harborrl_agent_server.dispatch.workers import Workers
from harborrl_agent_server.gateway import Gateway, serving
from harborrl_agent_server.gateway_session import ModelSession, Upstream
from harborrl_agent_server.metrics import Metrics
from harborrl_agent_server.settings import Settings, Worker
from support import agent_http


def health(
    status: str = "ok", *, taken: int = 0, queued: int = 0, oldest: float | None = None, done: int = 0
) -> Health:
    return Health(
        status=status,
        version="1",
        instance="pod-w0",
        capacity=4,
        in_flight=taken,
        queued=queued,
        free=0,
        oldest_trial_s=oldest,
        budgets={},
        outcomes={"Submitted": done},
    )


def test_health_adds_up_what_the_workers_have_of_the_pods_slots() -> None:
    found = merging.health([health(taken=1, oldest=3, done=2), health(taken=2, done=1)], workers=2, instance="pod")
    assert (found.capacity, found.in_flight, found.free, found.oldest_trial_s) == (4, 3, 1, 3)
    assert (found.status, found.instance, found.outcomes) == ("ok", "pod", {"Submitted": 3})


def test_slots_are_not_free_while_trials_wait_for_them() -> None:
    assert merging.health([health(taken=3, queued=2), health()], workers=2, instance="pod").free == 0


@pytest.mark.parametrize(
    ("said", "workers", "status"),
    [(["ok", "degraded"], 2, "degraded"), (["degraded", "draining"], 2, "draining"), (["ok"], 2, "degraded")],
)
def test_the_worst_of_the_workers_speaks_for_all_and_a_silent_one_is_a_degradation(
    said: list[str], workers: int, status: str
) -> None:
    assert merging.health([health(one) for one in said], workers=workers, instance="pod").status == status


def test_counters_and_histograms_are_added_and_what_each_says_of_the_pod_is_said_once() -> None:
    pages = []
    for lag in (0.5, 0.25):
        metrics = Metrics()
        metrics.capacity.set(8)
        metrics.in_flight.set(2)
        metrics.loop_lag.set(lag)
        answer = RunResponse(exit_status=ExitStatus.SUBMITTED, infra_failure=False, phase_seconds={"run": 2.0})
        metrics.observe(answer)
        pages.append(generate_latest(metrics.registry).decode())
    values = {
        sample.name: sample.value
        for family in merging.metrics(pages)
        for sample in family.samples
        if sample.labels in ({}, {"outcome": "Submitted"}, {"phase": "run"})
    }
    assert (values["harborrl_agent_trials_total"], values["harborrl_agent_in_flight"]) == (2, 4)
    assert (values["harborrl_agent_capacity"], values["harborrl_agent_loop_lag_seconds"]) == (8, 0.5)
    assert values["harborrl_agent_phase_seconds_sum"] == 4


def test_flushes_are_added() -> None:
    one = FlushResponse(cancelled=2, pending=1, ids=["a"], unreached=0)
    two = FlushResponse(cancelled=1, pending=0, ids=["a"], unreached=1)
    found = merging.flushed(["b", "a"], [one, two])
    assert (found.cancelled, found.pending, found.unreached, found.ids) == (3, 1, 1, ["a", "b"])


def test_a_session_is_always_the_same_workers_and_sessions_are_spread() -> None:
    spread = Counter(worker_of(f"{number}", 4) for number in range(400))
    assert min(spread.values()) > 60
    body = b'{"instance_id": "t", "base_url": "http://a/sessions/7/v1"}'
    assert len({worker_for(body, 4) for _ in range(20)}) == 1


def test_a_worker_more_moves_a_sessions_worker_only_to_itself() -> None:
    for number in range(200):
        before, after = worker_of(f"{number}", 3), worker_of(f"{number}", 4)
        assert after in {before, 3}


def test_what_names_no_session_goes_to_any_worker() -> None:
    random.seed(7)
    bodies = (b'{"instance_id": "t"}', b"{")
    assert all({worker_for(body, 2) for _ in range(50)} == {0, 1} for body in bodies)


def test_each_worker_has_sandboxes_of_its_own_name(tmp_path: Path) -> None:
    names = {
        Settings(tmp_path, tmp_path, pod_name="p" * 70, worker=Worker(index, tmp_path)).server_name for index in (0, 1)
    }
    assert {len(name) for name in names} == {63}
    assert {name[-3:] for name in names} == {"-w0", "-w1"}


async def test_a_token_of_the_gateway_leads_to_the_worker_that_gave_it(tmp_path: Path) -> None:
    workers = Workers(2, tmp_path, [], {})
    async with httpx.AsyncClient() as client:
        gateway = Gateway(lambda: client, "1-")
        gateway.address = "http://gateway"
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(workers.children[1].worker.gateway_socket))
        session = ModelSession(Upstream("http://nowhere/v1", "policy"), client, {}, [])
        async with serving(gateway.app(), listener), agent_http.serving(gateway_app(workers)) as front:
            with gateway.admitted(session) as url:
                path = url.removeprefix("http://gateway")
                found = await client.get(f"{front}{path}/models")
                guessed = await client.get(f"{front}/m/1-guess/v1/models")
                of_nobody = await client.get(f"{front}/m/9-guess/v1/models")
            over = await client.get(f"{front}{path}/models")
    await workers.close()
    assert found.json()["data"][0]["id"] == "policy"
    assert (guessed.status_code, of_nobody.status_code, over.status_code) == (401, 401, 410)
