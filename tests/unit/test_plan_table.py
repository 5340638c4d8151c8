"""The state machine as a table: a life so far, what is seen now -> phase, reason, what is applied, what is deleted.

Each row is a sentence. `life` is what came before: worlds that a pass has seen, and edits of the spec by its owner.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from harborrl_operator.budgets import FINAL_REASON
from harborrl_operator.constants import Reason
from harborrl_operator.models import HarborRLJob
from harborrl_operator.observed import Observed
from support import hrl
from support.hrl import decide, then

JOB = hrl.job()
SERVER = {"deployment": hrl.deployment()}
PASSED = hrl.preflight_pod(JOB, exit_code=0, message=hrl.PASSED)
REFUSED = hrl.preflight_pod(
    JOB,
    exit_code=1,
    message='{"schemaVersion":1,"ok":false,"findings":[{"severity":"refuse","reason":"NoTasks","message":"none"}]}',
)
HELD: dict[str, Any] = {"ray_clusters": {"quickstart-a1": hrl.ray_cluster(JOB, suspend=True)}, "trainer_pods": ()}
SUSPEND, GO_ON = {"suspend": True}, {"suspend": False}
ASKED = {"metadata": {"name": "quickstart-request", "namespace": "research", "uid": "cm-9"}}
ENDING = (hrl.trainer_pod("head", terminating=True),)


def runs(state: str = "RUNNING", **changes: Any) -> Observed:
    report = hrl.progress(state, incarnation=changes.pop("incarnation", 1))
    return hrl.running_world(JOB, **({"progress": report} | changes))


def fails(failure: str) -> Observed:
    return runs(progress=hrl.progress("FAILED", failure=failure))


def gone(state: str, **changes: Any) -> Observed:
    """No cluster and no pod; the last report stays."""
    return hrl.world(**SERVER, progress=hrl.progress(state), progress_exists=True, **changes)


def spelled(row: "Row") -> str:
    return row.sentence.replace(" ", "_")


@dataclass(frozen=True)
class Row:
    sentence: str
    seen: Observed
    outcome: tuple[str, str]
    """Phase and reason."""
    life: Sequence[Observed | dict[str, Any]] = ()
    spec: dict[str, Any] = field(default_factory=dict)
    after: float = 0
    applies: AbstractSet[str] = frozenset()
    """Kinds beside the support (rights, policies, Services, Deployment, document), which each pass repairs."""
    deletes: AbstractSet[str] = frozenset()

    @property
    def reason_of_end(self) -> str | None:
        phase, reason = self.outcome
        return reason if phase in ("Succeeded", "Failed") else None


SUPPORT = {"ServiceAccount", "RoleBinding", "Service", "Deployment", "ConfigMap/quickstart-config"}
SUPPORT |= {"NetworkPolicy", "PodDisruptionBudget", "Role"}
RAY, POD, REQUEST = "RayCluster/quickstart-a1", "Pod/quickstart-preflight", "ConfigMap/quickstart-request"
AGENT, REPORT = hrl.SERVER, "ConfigMap/quickstart-progress"
ALL = frozenset({RAY, AGENT})

PREFLIGHT = ("Preflight", "AwaitingPreflight")
RUNNING = ("Running", "RolloutsAdvancing")
BACKS_OFF, WAITS = ("StartingTrainer", "BackingOff"), ("StartingTrainer", "WaitingForOldPods")
SUSPENDING, SUSPENDED = ("Suspending", "Suspending"), ("Suspended", "Suspended")
SUCCEEDED = ("Succeeded", "Completed")


def failed(reason: str) -> tuple[str, str]:
    return ("Failed", reason)


ROWS = [
    # towards a cluster
    Row("a new job starts its agent server", hrl.world(), ("StartingAgentServer", "Starting")),
    Row(
        "a job that a check refuses holds nothing",
        hrl.world(**SERVER, claims={"harborrl-data": None}),
        ("Refused", "ClaimNotFound"),
        deletes={AGENT},
    ),
    Row("a healthy agent server is followed by the preflight", hrl.world(**SERVER), PREFLIGHT, applies={POD}),
    Row(
        "a refusing preflight holds nothing",
        hrl.world(**SERVER, preflight_pod=REFUSED),
        ("Refused", "NoTasks"),
        deletes={hrl.SERVER},
    ),
    Row(
        "a preflight that passed is followed by the cluster",
        hrl.world(**SERVER, preflight_pod=PASSED),
        ("StartingTrainer", "Starting"),
        applies={RAY, REPORT},
    ),
    Row(
        "no cluster is made while a pod of an earlier one still ends",
        hrl.world(**SERVER, preflight_pod=PASSED, trainer_pods=ENDING),
        WAITS,
    ),
    Row("a cluster that a queue holds back is waited for", runs(**HELD), ("Queued", "Queued")),
    Row(
        "a trainer that never runs fails the job at its deadline",
        hrl.running_world(JOB, trainer_pods=()),
        failed("StartDeadlineExceeded"),
        life=[hrl.running_world(JOB, trainer_pods=())],
        after=1801,
        deletes=ALL,
    ),
    # running
    Row("a driver that runs is Running", runs(), RUNNING),
    Row("a supervisor that restarts changes nothing", runs(), RUNNING, life=[runs()]),
    Row("a driver that finished has succeeded", runs("SUCCEEDED"), SUCCEEDED, deletes=ALL),
    Row(
        "a driver that finished has succeeded although its cluster is gone",
        gone("SUCCEEDED"),
        SUCCEEDED,
        life=[runs()],
        deletes={AGENT},
    ),
    Row("a driver that failed is followed by another attempt", fails("infrastructure"), BACKS_OFF, deletes={RAY}),
    Row(
        "a driver that refused its configuration fails the job",
        fails("configuration"),
        failed("ConfigurationFailure"),
        deletes=ALL,
    ),
    Row("a full volume fails the job", fails("storage"), failed("StorageFailure"), deletes=ALL),
    Row(
        "a start at 0 beside a checkpoint is refused for good",
        runs(progress=hrl.progress("FAILED", {"driver.cause": "RestartAtZero"}, failure="storage")),
        failed("RestartAtZero"),
        deletes=ALL,
    ),
    Row(
        "a driver that failed by itself as often as it may fails the job",
        fails("application"),
        failed("ApplicationFailure"),
        spec={"retries.maxApplicationFailures": 1},
        deletes=ALL,
    ),
    Row(
        "infrastructure that was lost as often as it may be fails the job",
        fails("infrastructure"),
        failed("InfrastructureFailure"),
        spec={"retries.maxAttempts": 1},
        deletes=ALL,
    ),
    Row(
        "a failed job that keeps its cluster gives back everything else",
        fails("infrastructure"),
        failed("InfrastructureFailure"),
        spec={"retries.maxAttempts": 1, "retries.keepClusterSeconds": 60},
        deletes={AGENT},
    ),
    Row("a head that ends while it saves is waited for", runs(trainer_pods=ENDING), RUNNING, life=[runs()]),
    Row("a head that is gone is another attempt", runs(trainer_pods=()), BACKS_OFF, life=[runs()], deletes={RAY}),
    Row("a cluster that somebody deleted is another attempt", gone("RUNNING"), BACKS_OFF, life=[runs()]),
    Row("a run that stalls says so and goes on", runs(), ("Running", "AgentServerBusy"), life=[runs()], after=1000),
    Row(
        "a run that stalls is restarted where the job wants it",
        runs(),
        BACKS_OFF,
        life=[runs()],
        spec={"progress.onStall": "Restart"},
        after=1900,
        deletes={RAY},
    ),
    Row(
        "a job that was active for too long fails",
        runs(),
        failed("ActiveDeadlineExceeded"),
        life=[hrl.world(), runs()],
        spec={"activeDeadlineSeconds": 60},
        after=61,
        deletes=ALL,
    ),
    # suspend
    Row("a suspend asks a running driver to stop", runs(), SUSPENDING, life=[runs(), SUSPEND], applies={REQUEST}),
    Row(
        "a suspend of a job whose driver has not begun releases at once",
        runs("PENDING"),
        SUSPENDING,
        life=[SUSPEND],
        deletes=ALL,
    ),
    Row("a suspend of a queued job releases its place at once", runs(**HELD), SUSPENDED, life=[SUSPEND], deletes=ALL),
    Row(
        "a suspend of a finished job changes nothing",
        runs("SUCCEEDED"),
        SUCCEEDED,
        life=[runs("SUCCEEDED"), SUSPEND],
        deletes=ALL,
    ),
    Row("a driver that stopped as asked is released", runs("STOPPED"), SUSPENDING, life=[runs(), SUSPEND], deletes=ALL),
    Row("a job whose pods are gone is Suspended", gone("STOPPED"), SUSPENDED, life=[runs(), SUSPEND], deletes={AGENT}),
    Row(
        "a job that is suspended between two attempts waits for no pause",
        gone("FAILED"),
        SUSPENDED,
        life=[fails("infrastructure"), SUSPEND],
        deletes={AGENT},
    ),
    Row(
        "a job that is no longer suspended goes on from its preflight",
        gone("STOPPED"),
        PREFLIGHT,
        life=[runs(), SUSPEND, runs("STOPPED"), gone("STOPPED"), GO_ON],
        applies={POD},
    ),
    Row(
        "a job that goes on counts its new head as the next incarnation",
        runs(incarnation=2),
        RUNNING,
        life=[runs(), SUSPEND, runs("STOPPED"), gone("STOPPED"), GO_ON],
    ),
    Row(
        "a suspend that is taken back while the driver runs lets it run",
        runs(request=ASKED),
        RUNNING,
        life=[runs(), SUSPEND, runs(), GO_ON],
        deletes={REQUEST},
    ),
    Row(
        "a driver that stops although the suspend was taken back costs no attempt",
        runs("STOPPED"),
        WAITS,
        life=[runs(), SUSPEND, runs(), GO_ON],
        deletes={RAY},
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=spelled)
def test(row: Row) -> None:
    job = hrl.job(row.spec)
    for step in row.life:
        job = edited(job, step) if isinstance(step, dict) else then(job, decide(job, step))
    decided = decide(job, row.seen, after=row.after)
    assert (decided.status.phase, decided.status.reason) == row.outcome, decided.status.message
    applied = {name for name in hrl.applied(decided) if name.split("/")[0] not in SUPPORT and name not in SUPPORT}
    assert applied == row.applies
    assert set(hrl.deleted(decided)) == row.deletes


def edited(job: HarborRLJob, changes: dict[str, Any]) -> HarborRLJob:
    return replace(job, spec=job.spec.model_copy(update=changes))


@pytest.mark.parametrize("row", [row for row in ROWS if row.reason_of_end], ids=spelled)
def test_however_a_job_ends_it_holds_nothing_that_costs_unless_it_was_told_to(row: Row) -> None:
    held = {f"RayCluster/{name}" for name in row.seen.ray_clusters} | ({AGENT} if row.seen.agent_servers else set())
    assert held - row.deletes == ({RAY} if "retries.keepClusterSeconds" in row.spec else set())


def test_every_end_has_a_row() -> None:
    ends = {row.reason_of_end for row in ROWS} - {None}
    assert ends == {
        Reason.COMPLETED,
        Reason.RESTART_AT_ZERO,
        Reason.START_DEADLINE_EXCEEDED,
        Reason.ACTIVE_DEADLINE_EXCEEDED,
        *FINAL_REASON.values(),
    }


def test_every_phase_is_reached_by_a_row() -> None:
    phases = {row.outcome[0] for row in ROWS}
    assert phases == {
        "StartingAgentServer",
        "Refused",
        "Preflight",
        "Queued",
        "StartingTrainer",
        "Running",
        "Succeeded",
        "Failed",
        "Suspending",
        "Suspended",
    }
