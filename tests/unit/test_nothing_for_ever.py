"""Nothing holds GPUs for ever, and nothing ends a run that had begun while its budget is unspent.

Whatever happened before: in a world that is stuck, a job comes to its end, or to a state of docs/conditions.md that
waits for somebody.
"""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from harborrl_operator.constants import ConditionType, Phase, Reason
from harborrl_operator.fates import is_unconfirmed
from harborrl_operator.models import HarborRLJob
from support import hrl
from support.helpless_world import HelplessWorld, Stuck

STEP_SECONDS = 400
PASSES = 150
"""A bound for three attempts, each with a start of 1800 s, a stall of as much, and pauses: 60,000 s."""

flags = st.booleans()
SPECS = st.fixed_dictionaries(
    {
        "retries.maxAttempts": st.integers(1, 3),
        "progress.onStall": st.sampled_from(["Report", "Restart"]),
        "trainer.startDeadlineSeconds": st.integers(60, 1800),
        "checkpoint.suspendWaitSeconds": st.integers(1, 1000),
    }
)
STUCK = st.builds(
    Stuck,
    server=st.sampled_from([True, True, True, False]),
    preflight=st.sampled_from(
        ["passes"] * 12 + ["pending", "hangs", "crashes", "NoTasks", "CapacityTooSmall", "ClaimNotFound"]
    ),
    cluster=st.sampled_from(["ready", "ready", "refused", "held", "silent", "pending", "headless", "maimed"]),
    report=st.sampled_from(["RUNNING", "RUNNING", None, "STARTING", "PENDING", "FAILED", "STOPPED", "{}", "["]),
    failure=st.sampled_from([None, "infrastructure", "application", "storage", "novel"]),
    wrong=flags,
    confirms=st.sampled_from([True, True, False]),
    suspend=st.sampled_from([False, False, False, True]),
)


@st.composite
def lives(draw: st.DrawFn) -> tuple[HarborRLJob, HelplessWorld, bool]:
    """A job after up to three troubles, in a world that is stuck from now on, and whether a driver of it ever ran."""
    queue = draw(flags)
    job = hrl.job(draw(SPECS) | ({"queueName": "h200"} if queue else {}))
    ran = False
    life = HelplessWorld(Stuck(), queue=queue)
    for _ in range(draw(st.sampled_from([6, 6, 6, 0]))):  # all is well, and it may come to run
        job = life.step(job, 10)
        ran = ran or job.status.phase is Phase.RUNNING
    for trouble in draw(st.lists(STUCK, max_size=2)):
        life.becomes(trouble)
        for _ in range(draw(st.integers(1, 6))):
            job = life.step(job, draw(st.integers(1, 900)))
            ran = ran or job.status.phase is Phase.RUNNING
    life.becomes(draw(STUCK))
    return job, life, ran


def waits_for_somebody(job: HarborRLJob, life: HelplessWorld) -> bool:
    """The states of docs/conditions.md that have no clock."""
    status = job.status
    if status.phase in (Phase.REFUSED, Phase.QUEUED, Phase.SUSPENDED):
        return True
    cut_off = any(is_unconfirmed(pod, life.now) for pod in life.ending)
    if status.phase is Phase.SUSPENDING or status.reason == Reason.WAITING_FOR_OLD_PODS:
        return cut_off
    return status.phase is Phase.RUNNING and _is_left_alone(job, life)


def _is_left_alone(job: HarborRLJob, life: HelplessWorld) -> bool:
    """The driver says that it runs, its gang is whole, and nobody may or wants to judge that it stalls."""
    said = {condition.type: condition for condition in job.status.conditions}
    if life.cluster is None or life.stuck.cluster not in ("ready", "refused") or life.stuck.report != "RUNNING":
        return False
    unread = said[ConditionType.PROGRESSING].reason == Reason.PROGRESS_UNREADABLE
    stalled = said[ConditionType.STALLED].status == "True" and job.spec.progress.on_stall == "Report"
    return unread or stalled


def outcome(job: HarborRLJob, life: HelplessWorld) -> HarborRLJob:
    for _ in range(PASSES):
        job = life.step(job, STEP_SECONDS)
        if job.status.finished_at is not None:
            break
    return job


@given(lives())
@settings(max_examples=60, deadline=None)
def test_in_a_world_that_is_stuck_a_job_ends_or_waits_for_somebody(
    life: tuple[HarborRLJob, HelplessWorld, bool],
) -> None:
    job, world, _ = life
    job = outcome(job, world)
    assert job.status.finished_at is not None or waits_for_somebody(job, world), (job.status, world)


@given(lives())
@settings(max_examples=60, deadline=None)
def test_a_run_that_had_begun_ends_by_a_budget_that_is_spent(life: tuple[HarborRLJob, HelplessWorld, bool]) -> None:
    job, world, ran = life
    job = outcome(job, world)
    if not ran or job.status.phase is not Phase.FAILED:
        return
    counts, retries = job.status.failures, job.spec.retries
    assert counts is not None
    spent: dict[str, Any] = {
        Reason.INFRASTRUCTURE_FAILURE: counts.infrastructure >= retries.max_attempts,
        Reason.STORAGE_FAILURE: counts.storage >= retries.max_storage_failures,
        Reason.APPLICATION_FAILURE: counts.application >= retries.max_application_failures,
    }
    assert spent.get(job.status.reason), (job.status, world)
