"""I5: the live agent server is well, has the capacity the job needs (I2) and gives up before its client does (I1)."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from harborrl_trainer.job import JobDocument
from harborrl_trainer.preflight.findings import Finding, Outcome, refuse, warn

_TRIES = 5
"""With the pauses 12 s when refused at once: a NetworkPolicy lets a new pod in only when the plugin has heard of it."""
_TIMEOUT_SECONDS = 5.0
_PAUSE_SECONDS = 3.0

_DEGRADED = "degraded"
_SERVING = ("ok", _DEGRADED)
"""A degraded server runs trials with all its slots: a teardown that never ended only leaves a task behind."""

_BUDGET_KEYS = ("environment_start_s", "agent_setup_s", "agent_timeout_s", "verifier_s", "cleanup_s")


@dataclass(frozen=True)
class Health:
    """What `GET /health` said: the document, or why there is none."""

    document: Mapping[str, Any] | None
    problem: str = ""


def fetch_health(client: httpx.Client, url: str, pause: Callable[[float], None] = time.sleep) -> Health:
    """Up to five tries of 5 s: a Service that has just become ready may miss its first call."""
    health = Health(None, "not asked")
    for attempt in range(_TRIES):
        if attempt:
            pause(_PAUSE_SECONDS)
        health = _ask(client, url)
        if not health.problem:
            break
    return health


def _ask(client: httpx.Client, url: str) -> Health:
    try:
        response = client.get(f"{url.rstrip('/')}/health", timeout=_TIMEOUT_SECONDS)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return Health(None, f"{type(error).__name__}: {error}")
    if response.status_code != 200:
        return Health(None, f"HTTP {response.status_code}")
    try:
        document = response.json()
    except ValueError:
        return Health(None, "an answer that is not JSON")
    if not isinstance(document, dict) or document.get("status") not in _SERVING:
        status = document.get("status") if isinstance(document, dict) else document
        return Health(None, f"status {str(status)[:80]!r}")
    return Health(document)


def check_agent_server(job: JobDocument, health: Health) -> Outcome:
    """Facts: `agentServer.capacity`, `agentServer.free`."""
    url = job.agent_server.url
    if health.document is None:
        message = (
            f"{url}/health gave {health.problem}. Look at the agent server's pods and logs, or correct agentServer.url."
        )
        return Outcome([refuse("I5", "AgentServerUnhealthy", message)])
    capacity = _number(health.document, "capacity")
    free = _number(health.document, "free")
    findings = [*_capacity(job, capacity, free), *_time_outs(job, health.document), *_wear(url, health.document)]
    return Outcome(findings, {"agentServer": {"capacity": capacity, "free": free}})


def _capacity(job: JobDocument, capacity: float | None, free: float | None) -> list[Finding]:
    needed, demand = _demand(job)
    if capacity is None or free is None:
        return [warn("I5", "CapacityUnknown", f"{job.agent_server.url} tells no capacity; {demand} may have to wait.")]
    if capacity < needed:
        remedy = "agentServer.maxConcurrent" if job.agent_server.owned else "its --max-concurrent"
        message = f"{demand}, but the agent server runs {capacity:g} at once. Raise {remedy} to {needed}."
        return [refuse("I5", "CapacityTooSmall", message)]
    if not job.agent_server.owned:
        return _shared(job, demand, needed, capacity, free)
    if free < needed:
        message = f"{demand}, but {free:g} of {capacity:g} slots are free now: trials of an earlier attempt still run."
        return [warn("I5", "CapacityTight", message)]
    return []


def _shared(job: JobDocument, demand: str, needed: int, capacity: float, free: float) -> list[Finding]:
    """What others were promised is not free, whether their trials run at this moment or not."""
    promised = job.agent_server.promised
    left = min(free, capacity - promised)
    if left >= needed:
        return []
    taken = f"{free:g} are free" + (f" and {promised} promised to other HarborRLJobs" if promised else "")
    message = (
        f"{demand}, but of the shared agent server's {capacity:g} slots {taken}, which leaves {max(left, 0):g}."
        f" Wait for the others, give the server {needed - left:g} more slots, or take smaller batches."
    )
    return [refuse("I5", "CapacityTooSmall", message)]


def _demand(job: JobDocument) -> tuple[int, str]:
    """Trials in flight, and where the number comes from."""
    batch, samples = job.config.rollout_batch_size, job.config.n_samples_per_prompt
    if job.in_flight in (None, batch * samples):
        return batch * samples, f"rolloutBatchSize {batch} x nSamplesPerPrompt {samples} = {batch * samples} in flight"
    return job.in_flight, f"The job's arguments keep {job.in_flight} trials in flight"


def _time_outs(job: JobDocument, document: Mapping[str, Any]) -> list[Finding]:
    budgets = document.get("budgets")
    parts = [_number(budgets, key) for key in _BUDGET_KEYS] if isinstance(budgets, dict) else []
    known = [part for part in parts if part is not None]
    if len(known) < len(_BUDGET_KEYS):
        message = (
            f"{job.agent_server.url} does not tell all its time budgets; whether it gives up in time is not known."
        )
        return [warn("I5", "BudgetsUnknown", message)]
    total, ceiling = sum(known), job.rollout.agent_trial_timeout_seconds
    if total <= ceiling:
        return []
    named = " + ".join(f"{key.removesuffix('_s')} {part:g}" for key, part in zip(_BUDGET_KEYS, known, strict=True))
    message = (
        f"The agent server may take {named} = {total:g} s, but rollout.agentTrialTimeoutSeconds is {ceiling:g}: "
        f"the client would give up first and lose the group. Raise it to at least {total:g} or lower a budget."
    )
    return [refuse("I5", "TimeoutOrder", message)]


def _wear(url: str, document: Mapping[str, Any]) -> list[Finding]:
    if document.get("status") != _DEGRADED:
        return []
    message = (
        f"{url} is degraded: the teardown of some trial never ended, and holds memory until the server restarts. Look"
        " at its log and at its sandboxes."
    )
    return [warn("I5", "AgentServerDegraded", message)]


def _number(document: Mapping[str, Any], key: str) -> float | None:
    value = document.get(key)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
