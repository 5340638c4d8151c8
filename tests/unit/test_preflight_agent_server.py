"""An agent server is judged by what its `/health` says, for an own server and for one that jobs share."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from harborrl_trainer.preflight.agent_server import Health, check_agent_server, fetch_health
from harborrl_trainer.preflight.findings import Outcome
from support import jobs
from support.findings import only_message, told

HEALTHY: dict[str, Any] = json.loads((jobs.CONTRACTS / "health.json").read_text()) | {"free": 8, "in_flight": 0}


def client_of(*answers: httpx.Response | Exception) -> httpx.Client:
    waiting = list(answers)

    def answer(request: httpx.Request) -> httpx.Response:
        assert request.url.path == "/health"
        found = waiting.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    return httpx.Client(transport=httpx.MockTransport(answer))


def fetch(*answers: httpx.Response | Exception) -> Health:
    with client_of(*answers) as client:
        return fetch_health(client, "http://agents:30000/", pause=lambda _: None)


def test_a_first_call_that_is_lost_is_forgiven() -> None:
    health = fetch(httpx.ConnectError("refused"), httpx.Response(200, json=HEALTHY))
    assert health.document == HEALTHY


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (httpx.ConnectError("refused"), "ConnectError: refused"),
        (httpx.Response(503), "HTTP 503"),
        (httpx.Response(200, text="<html>"), "not JSON"),
        (httpx.Response(200, json=HEALTHY | {"status": "draining"}), "status 'draining'"),
        (httpx.Response(200, json=[]), "status '[]'"),
    ],
)
def test_an_unhealthy_agent_server_is_refused_with_what_it_said(
    tmp_path: Path, answer: httpx.Response | Exception, said: str
) -> None:
    outcome = check_agent_server(jobs.job(tmp_path), fetch(*[answer] * 5))
    assert told(outcome) == [("refuse", "AgentServerUnhealthy")]
    assert said in only_message(outcome)


def test_the_contracts_own_health_is_accepted(tmp_path: Path) -> None:
    outcome = check_agent_server(jobs.job(tmp_path), Health(HEALTHY))
    assert outcome == Outcome([], {"agentServer": {"capacity": 8, "free": 8}})


def test_a_teardown_that_never_ended_is_told_and_does_not_end_the_next_attempt(tmp_path: Path) -> None:
    outcome = check_agent_server(jobs.job(tmp_path), fetch(httpx.Response(200, json=HEALTHY | {"status": "degraded"})))
    assert told(outcome) == [("warn", "AgentServerDegraded")]
    assert "restarts" in only_message(outcome)


def test_too_few_slots_are_refused_with_the_number_to_set(tmp_path: Path) -> None:
    outcome = check_agent_server(jobs.job(tmp_path), Health(HEALTHY | {"capacity": 7, "free": 7}))
    assert told(outcome) == [("refuse", "CapacityTooSmall")]
    assert "rolloutBatchSize 2 x nSamplesPerPrompt 4 = 8" in only_message(outcome)
    assert "Raise agentServer.maxConcurrent to 8" in only_message(outcome)


@pytest.mark.parametrize(
    ("owned", "verdict"), [(True, ("warn", "CapacityTight")), (False, ("refuse", "CapacityTooSmall"))]
)
def test_busy_slots_are_left_overs_of_an_own_server_and_other_peoples_of_a_shared_one(
    tmp_path: Path, owned: bool, verdict: tuple[str, str]
) -> None:
    outcome = check_agent_server(jobs.job(tmp_path, agentServer__owned=owned), Health(HEALTHY | {"free": 3}))
    assert told(outcome) == [verdict]


@pytest.mark.parametrize(
    ("promised", "free", "left", "more"),
    [(24, 32, None, 0), (25, 32, 7, 1), (0, 7, 7, 1), (24, 7, 7, 1), (40, 32, 0, 16)],
    ids=["just enough", "one promised too many", "one taken too many", "both", "promised more than there is"],
)
def test_what_other_jobs_were_promised_is_not_free(
    tmp_path: Path, promised: int, free: int, left: int | None, more: int
) -> None:
    job = jobs.job(tmp_path, agentServer__owned=False, agentServer__promised=promised)
    outcome = check_agent_server(job, Health(HEALTHY | {"capacity": 32, "free": free}))
    assert told(outcome) == ([] if left is None else [("refuse", "CapacityTooSmall")])
    if left is not None:
        said = f"which leaves {left}. Wait for the others, give the server {more} more slots"
        assert said in only_message(outcome)


def test_raw_flags_count_when_slots_are_compared(tmp_path: Path) -> None:
    outcome = check_agent_server(jobs.job(tmp_path, inFlight=16), Health(HEALTHY))
    assert told(outcome) == [("refuse", "CapacityTooSmall")]
    assert "The job's arguments keep 16 trials in flight, but the agent server runs 8" in only_message(outcome)


@pytest.mark.parametrize(("ceiling", "verdict"), [(660, []), (659, [("refuse", "TimeoutOrder")])])
def test_the_clients_ceiling_must_clear_the_servers_budgets(
    tmp_path: Path, ceiling: int, verdict: list[tuple[str, str]]
) -> None:
    job = jobs.job(tmp_path, rollout__agentTrialTimeoutSeconds=ceiling)
    outcome = check_agent_server(job, Health(HEALTHY))
    assert told(outcome) == verdict
    if verdict:
        assert "Raise it to at least 660" in only_message(outcome)


def test_a_server_that_tells_no_numbers_is_let_in_with_a_warning(tmp_path: Path) -> None:
    outcome = check_agent_server(jobs.job(tmp_path), Health({"status": "ok"}))
    assert told(outcome) == [("warn", "CapacityUnknown"), ("warn", "BudgetsUnknown")]
