"""Lives that need no API server of their own: suspended, taken back, in a queue, edited, late. Each a row of stages.

Played by the test are the user, Kueue, KubeRay, kubelet and the supervisor, on a clock that it moves.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from support.simulated_life import (
    JOB,
    STAGES,
    Act,
    Life,
    Reached,
    Stage,
    end,
    in_phase,
    is_gone,
    pass_preflight,
    passes,
    pod_name,
    remove_pod,
    report,
    serve,
    start_head,
    start_pod,
)

BETWEEN_SECONDS = 5.0
"""From one thing that happens to the next: what is told apart by an object's age is seconds apart, as in a cluster."""


@dataclass(frozen=True)
class Script:
    """A life to be lived."""

    stages: tuple[Stage, ...]
    made: tuple[str, ...]
    """RayClusters, in their order."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Of the spec, by dotted path."""
    spared: int = 3
    """Stages at the beginning that are as in the native life, where they are swept."""
    beside: frozenset[str] = frozenset()
    """Fields that a fault may change."""


def _all(*acts: Act) -> Act:
    async def act(life: Life) -> None:
        life.passed += BETWEEN_SECONDS
        for one in acts:
            await one(life)

    return act


def _edit(changes: Mapping[str, Any]) -> Act:
    async def act(life: Life) -> None:
        """The user changes the spec."""
        await life.patch("HarborRLJob", JOB, {"spec": dict(changes)})

    return act


def _says(state: str, failure: str | None = None, *, attempt: int = 1, incarnation: int = 1) -> Act:
    async def act(life: Life) -> None:
        await report(life, attempt, state, failure, incarnation=incarnation)

    return act


def _with(role: str, *, attempt: int = 1, incarnation: int = 1) -> Act:
    async def act(life: Life) -> None:
        await start_pod(life, role, attempt, incarnation)

    return act


def _without(role: str, *, attempt: int = 1, incarnation: int = 1) -> Act:
    async def act(life: Life) -> None:
        await remove_pod(life, role, attempt, incarnation)

    return act


def _kueue(*, holds: bool) -> Act:
    async def act(life: Life) -> None:
        await life.patch("RayCluster", f"{JOB}-a1", {"spec": {"suspend": holds}})

    return act


async def _garbage(life: Life) -> None:
    """No report that can be read."""
    await life.patch("ConfigMap", f"{JOB}-progress", {"data": {"progress": "{"}})


async def _serve_all(life: Life) -> None:
    """Every version of the agent server is ready."""
    for server in await life.cluster.find("Deployment", life.namespace):
        ready = {"observedGeneration": server["metadata"]["generation"], "replicas": 1, "readyReplicas": 1}
        await life.patch("Deployment", server["metadata"]["name"], {"status": ready}, "status")


def _both(*parts: Reached) -> Reached:
    async def reached(life: Life) -> bool:
        return all([await part(life) for part in parts])

    return reached


def _is_absent(kind: str, name: str) -> Reached:
    async def reached(life: Life) -> bool:
        return not await life.is_there(kind, name)

    return reached


def _has(kind: str, count: int) -> Reached:
    async def reached(life: Life) -> bool:
        return len(await life.cluster.find(kind, life.namespace)) == count

    return reached


def _has_reason(condition: str, reason: str) -> Reached:
    async def reached(life: Life) -> bool:
        listed = (await life.status()).get("conditions") or []
        return any((one["type"], one["reason"]) == (condition, reason) for one in listed)

    return reached


def _is_in_queue(priority: str) -> Reached:
    async def reached(life: Life) -> bool:
        found = await life.cluster.get("RayCluster", life.namespace, f"{JOB}-a1")
        return found is not None and found["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] == priority

    return reached


def _is_finished(reason: str) -> Reached:
    return _both(_has_reason("Finished", reason), _has("RayCluster", 0))


CREATED, SERVED, CHECKED, RUNS = STAGES[:4]
TO_RUNNING = (CREATED, SERVED, CHECKED, RUNS)
_CLUSTER = ("RayCluster", f"{JOB}-a1")
_STARTING = in_phase("StartingTrainer", *_CLUSTER)
_TTL = Stage("the time to live is over", passes(20), is_gone)


def _ends_well(attempt: int, incarnation: int) -> tuple[Stage, ...]:
    well = end(attempt, "SUCCEEDED", incarnation=incarnation)
    return Stage("all is trained", _all(well), in_phase("Succeeded", attempt=attempt)), _TTL


SUSPENDED = Script(
    (
        *TO_RUNNING,
        Stage("suspend", _all(_edit({"suspend": True})), in_phase("Suspending", "ConfigMap", f"{JOB}-request")),
        Stage("the driver has saved", _all(_says("STOPPED")), _both(in_phase("Suspending"), _has("RayCluster", 0))),
        Stage("its head has ended", _all(_without("head")), in_phase("Suspended")),
        Stage("resume", _all(_edit({"suspend": False})), in_phase("StartingAgentServer")),
        Stage("the agent server is ready again", _all(serve), in_phase("Preflight", "Pod", f"{JOB}-preflight")),
        Stage("the preflight passed again", _all(pass_preflight), _STARTING),
        Stage("the next incarnation runs", _all(start_head(1, 2)), in_phase("Running")),
        *_ends_well(1, 2),
    ),
    made=(f"{JOB}-a1", f"{JOB}-a1"),
)

TAKEN_BACK = Script(
    (
        *TO_RUNNING,
        Stage("suspend", _all(_edit({"suspend": True})), in_phase("Suspending", "ConfigMap", f"{JOB}-request")),
        Stage(
            "taken back",
            _all(_edit({"suspend": False})),
            _both(in_phase("Running"), _is_absent("ConfigMap", f"{JOB}-request")),
        ),
        Stage("the driver had been told", _all(_says("STOPPED"), _without("head")), _STARTING),
        Stage("the next incarnation runs", _all(start_head(1, 2)), in_phase("Running")),
        *_ends_well(1, 2),
    ),
    made=(f"{JOB}-a1", f"{JOB}-a1"),
)

QUEUED = Script(
    (
        CREATED,
        SERVED,
        CHECKED,
        Stage("Kueue holds it", _all(_kueue(holds=True)), in_phase("Queued")),
        Stage("Kueue admits it", _all(_kueue(holds=False)), _STARTING),
        Stage("head and worker run", _all(_with("worker"), start_head(1)), in_phase("Running")),
        Stage(
            "the infrastructure fails",
            _all(_says("FAILED", "infrastructure")),
            _both(_STARTING, _is_absent("Pod", pod_name("head", 1)), _is_absent("Pod", pod_name("worker", 1))),
        ),
        Stage("new pods run", _all(_with("worker", incarnation=2), start_head(1, 2)), in_phase("Running")),
        Stage(
            "KubeRay has replaced the head",
            _all(_without("head", incarnation=2), _with("head", incarnation=3)),
            _both(_STARTING, _is_absent("Pod", pod_name("worker", 1, 2))),
        ),
        Stage(
            "the new head's driver runs",
            _all(_with("worker", incarnation=3), _says("RUNNING", incarnation=3)),
            in_phase("Running"),
        ),
        Stage(
            "Kueue takes the quota",
            _all(
                _kueue(holds=True),
                _says("STOPPED", incarnation=3),
                _without("head", incarnation=3),
                _without("worker", incarnation=3),
            ),
            in_phase("Queued"),
        ),
        Stage("another priority", _all(_edit({"workloadPriorityClass": "high"})), _is_in_queue("high")),
        Stage("Kueue holds the new one", _all(_kueue(holds=True)), in_phase("Queued")),
        Stage("Kueue admits the new one", _all(_kueue(holds=False)), _STARTING),
        Stage("the fourth incarnation runs", _all(start_head(1, 4)), in_phase("Running")),
        *_ends_well(1, 4),
    ),
    made=(f"{JOB}-a1", f"{JOB}-a1"),
    changes={
        "queueName": "q",
        "workloadPriorityClass": "low",
        "trainer.allowPartialStart": False,
        "retries": {"maxAttempts": 5},
    },
)

EDITED = Script(
    (
        *TO_RUNNING,
        Stage(
            "another agent server",
            _all(_edit({"agentServer": {"agentKwargs": {"maxTurns": 5}}})),
            _has("Deployment", 2),
        ),
        Stage("it takes over", _all(_serve_all), _has("Deployment", 1)),
        Stage(
            "an edit that no attempt could begin with",
            _all(_edit({"agentServer": {"sandbox": {"namespace": "nowhere"}}})),
            in_phase("Running"),
        ),
        Stage("a node is lost", _all(end(1, "FAILED", "infrastructure")), in_phase("Refused", attempt=2)),
        Stage(
            "corrected",
            _all(passes(20), _edit({"agentServer": {"sandbox": {"namespace": "harborrl-sandboxes"}}})),
            in_phase("StartingAgentServer", attempt=2),
        ),
        Stage("the agent server is ready again", _all(serve), in_phase("Preflight", "Pod", f"{JOB}-preflight", 2)),
        Stage(
            "the preflight passed again",
            _all(pass_preflight),
            in_phase("StartingTrainer", "RayCluster", f"{JOB}-a2", 2),
        ),
        Stage("the second head runs", _all(start_head(2)), in_phase("Running", attempt=2)),
        Stage(
            "the driver fails for good",
            _all(_says("FAILED", "configuration", attempt=2)),
            in_phase("Failed", "RayCluster", f"{JOB}-a2", attempt=2),
        ),
        Stage("its cluster was kept long enough", passes(70), _has("RayCluster", 0)),
        Stage("the time to live is over", passes(60), is_gone),
    ),
    made=(f"{JOB}-a1", f"{JOB}-a2"),
    changes={"retries": {"maxAttempts": 3, "keepClusterSeconds": 60}, "ttlSecondsAfterFinished": 120},
)

LATE = Script(
    (
        *TO_RUNNING,
        Stage("a report that nobody can read", _all(_garbage), _has_reason("Progressing", "ProgressUnreadable")),
        Stage("one that can be read again", _all(_says("RUNNING")), in_phase("Running")),
        Stage("its time is over", passes(3600), _is_finished("ActiveDeadlineExceeded")),
        _TTL,
    ),
    made=(f"{JOB}-a1",),
    changes={"activeDeadlineSeconds": 3600},
)

NEVER_STARTED = Script(
    (
        CREATED,
        SERVED,
        CHECKED,
        Stage("no pod for half an hour", passes(1801), _is_finished("StartDeadlineExceeded")),
        _TTL,
    ),
    made=(f"{JOB}-a1",),
    # The last obstacle is told as the pass finds it that ends the job, and the one before has begun to release.
    beside=frozenset({"conditions", "message"}),
)

LIVES: Mapping[str, Script] = {
    "native": Script(STAGES, made=(f"{JOB}-a1", f"{JOB}-a2"), spared=0),
    "suspended": SUSPENDED,
    "taken back": TAKEN_BACK,
    "in a queue": QUEUED,
    "edited": EDITED,
    "late": LATE,
    "never started": NEVER_STARTED,
}
