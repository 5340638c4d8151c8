"""Prometheus metrics of the operator itself; docs/metrics.md explains each."""

from collections import Counter as Tally

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from harborrl_operator.constants import ConditionType, Phase
from harborrl_operator.models import JobStatus
from harborrl_operator.transport import Answer, Request, Send

REGISTRY = CollectorRegistry()

LEADER = Gauge("harborrl_leader", "1 while this process leads, 0 while it is the spare.", registry=REGISTRY)
JOBS = Gauge("harborrl_jobs", "Jobs by phase; the leader alone counts.", ["phase"], registry=REGISTRY)
ATTEMPTS = Counter(
    "harborrl_attempts",
    "Attempts that ended, by outcome and failure class.",
    ["outcome", "failure_class"],
    registry=REGISTRY,
)
STALLS = Counter("harborrl_stalls", "Times that a job became Stalled.", registry=REGISTRY)
GPU_HOURS_LOST = Counter(
    "harborrl_gpu_hours_lost",
    "GPU-hours of work that failed attempts took with them.",
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
    for attempt in after.attempts:
        if attempt.finished_at and attempt.number not in ended:
            ATTEMPTS.labels(attempt.outcome, attempt.failure_class or "").inc()
            lost = attempt.lost_gpu_hours
            if lost:
                GPU_HOURS_LOST.labels(attempt.failure_class or "").inc(lost)


def show_jobs(phases: Tally[str]) -> None:
    for phase in Phase:
        JOBS.labels(phase).set(phases[phase])


def _is_true(status: JobStatus, kind: ConditionType) -> bool:
    return any(condition.type is kind and condition.status == "True" for condition in status.conditions)
