"""Prometheus metrics of the operator itself; docs/metrics.md explains each."""

from collections import Counter as Tally

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from harborrl_operator.constants import Cause, ConditionType, Phase
from harborrl_operator.models import JobStatus
from harborrl_operator.models.status import LossStatus
from harborrl_operator.transport import Answer, Request, Send

REGISTRY = CollectorRegistry()

LEADER = Gauge("harborrl_leader", "1 while this process leads, 0 while it is the spare.", registry=REGISTRY)
JOBS = Gauge("harborrl_jobs", "Jobs by phase; the leader alone counts.", ["phase"], registry=REGISTRY)
STALLED = Gauge(
    "harborrl_jobs_stalled",
    "Jobs that are Stalled now and hold what they hold; the leader alone counts.",
    registry=REGISTRY,
)
ATTEMPTS = Counter(
    "harborrl_attempts",
    "Attempts that ended, by outcome and failure class.",
    ["outcome", "failure_class"],
    registry=REGISTRY,
)
STALLS = Counter("harborrl_stalls", "Times that a job became Stalled, or was restarted for it.", registry=REGISTRY)
GPU_HOURS_LOST = Counter(
    "harborrl_gpu_hours_lost",
    "GPU-hours of work that an end took with it: of an attempt or of an incarnation within one.",
    ["failure_class"],
    registry=REGISTRY,
)
PASSES = Counter("harborrl_reconciles", "Passes over jobs by result.", ["result"], registry=REGISTRY)
SECONDS = Histogram("harborrl_reconcile_seconds", "Duration of a pass.", registry=REGISTRY)
CALLS = Counter(
    "harborrl_api_calls",
    "Requests to the API server, watches aside; code 0: no answer.",
    ["verb", "kind", "code"],
    registry=REGISTRY,
)
QUEUED = Gauge("harborrl_queue_length", "Jobs that wait for a pass, timers included.", registry=REGISTRY)
WATCH_AGE = Gauge(
    "harborrl_watch_age_seconds", "Seconds since our heartbeat was last seen in the watch.", registry=REGISTRY
)
SWEPT = Counter(
    "harborrl_swept",
    "Objects in sandbox namespaces removed because the job, agent server or namespace behind them was gone.",
    ["kind"],
    registry=REGISTRY,
)
EVENTS = Counter(
    "harborrl_events",
    "Events by what became of them: written, repeated, suppressed, refused.",
    ["result"],
    registry=REGISTRY,
)


_CLASSES = ("", "configuration", "infrastructure", "application", "storage")
"""No class: of an end that is no failure, of a deadline, of a suspend or preemption."""

# `increase()` sees nothing of a series that is born with its first count.
for _class in _CLASSES:
    GPU_HOURS_LOST.labels(_class)
    for _outcome in ("Succeeded", "Failed"):
        ATTEMPTS.labels(_outcome, _class)


def counted(send: Send) -> Send:
    """Counts every request by its answer."""

    async def counting(request: Request) -> Answer:
        code = 0
        try:
            answer = await send(request)
            code = answer.status
        finally:
            CALLS.labels(request.verb, request.kind, code).inc()
        return answer

    return counting


def count_change(before: JobStatus, after: JobStatus) -> None:
    """What a status that was just written says for the first time."""
    was_stalled, is_stalled = (_is_true(status, ConditionType.STALLED) for status in (before, after))
    if is_stalled and not was_stalled:
        STALLS.inc()
    ended = {attempt.number for attempt in before.attempts if attempt.finished_at}
    new = [attempt for attempt in after.attempts if attempt.finished_at and attempt.number not in ended]
    for attempt in new:
        ATTEMPTS.labels(attempt.outcome, attempt.failure_class or "").inc()
    restarted = _restart(before, after)
    STALLS.inc(sum(attempt.cause == Cause.STALLED for attempt in new) + (restarted == Cause.STALLED))
    lost = (after.lost or LossStatus()).gpu_hours - (before.lost or LossStatus()).gpu_hours
    if lost > 0:
        by = new[-1].failure_class if new else "infrastructure" if restarted else None
        GPU_HOURS_LOST.labels(by or "").inc(lost)


def _restart(before: JobStatus, after: JobStatus) -> str | None:
    """Why the pods of the current attempt were made anew within its quota, when they just were."""
    if not after.attempts:
        return None
    current = after.attempts[-1]
    counted = next((attempt.restarts for attempt in before.attempts if attempt.number == current.number), 0)
    return current.last_restart.cause if current.restarts > counted and current.last_restart else None


def show_jobs(phases: Tally[str], stalled: int) -> None:
    for phase in Phase:
        JOBS.labels(phase).set(phases[phase])
    STALLED.set(stalled)


def _is_true(status: JobStatus, kind: ConditionType) -> bool:
    return any(condition.type is kind and condition.status == "True" for condition in status.conditions)
