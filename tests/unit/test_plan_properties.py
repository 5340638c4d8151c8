"""What must hold for every world that can be observed."""

import re
from datetime import timedelta
from itertools import pairwise
from typing import Any

from hypothesis import given, seed, settings
from hypothesis import strategies as st

from harborrl_operator.constants import ConditionType, Phase
from harborrl_operator.draft import Plan
from harborrl_operator.models import HarborRLJob
from harborrl_operator.models.status import FailureCounts, LossStatus
from harborrl_operator.observed import Observed
from harborrl_operator.plan import plan
from harborrl_operator.resources.config_maps import stop_request
from support import hrl, kueue

LABEL = re.compile(r"[a-z0-9A-Z]([-._a-z0-9A-Z]{0,61}[a-z0-9A-Z])?")
NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")

LONGEST = {"RayCluster": 53, "Deployment": 58}
"""KubeRay's bound, and where the generated part of a pod's name would begin to be cut."""

PASSES = 5
LONGEST_PASS = 6000
"""Seconds."""

flags = st.booleans()
failures = st.sampled_from([None, "configuration", "infrastructure", "application", "storage"])


@st.composite
def specs(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "suspend": draw(mostly(False, True)),
        "retries.maxAttempts": draw(st.integers(1, 3)),
        "retries.maxApplicationFailures": draw(st.integers(1, 3)),
        "retries.keepClusterSeconds": draw(st.sampled_from([0, 600])),
        "checkpoint.suspendWaitSeconds": draw(st.integers(1, 1000)),
        "progress.onStall": draw(st.sampled_from(["Report", "Restart"])),
        **({"activeDeadlineSeconds": draw(st.integers(1, 3000))} if draw(flags) else {}),
        **({"trainer.engine": "miles", "trainer.gpusPerNode": 8} if draw(flags) else {}),
        "trainer.startDeadlineSeconds": draw(st.integers(1, 2000)),
        **({"agentServer.maxConcurrent": draw(st.integers(1, 16))} if draw(flags) else {}),
        **(hrl.BROUGHT | {"agentServer.maxConcurrent": None} if draw(flags) else {}),
    }


@st.composite
def reports(draw: st.DrawFn) -> dict[str, Any]:
    start = {"firstRollout": draw(st.integers(0, 3)), "optimizer": draw(st.sampled_from([None, True, False]))}
    return {
        "rollout.trained": draw(st.integers(0, 5)),
        "checkpoint": draw(st.sampled_from([None, {"rolloutId": 1, "savedAt": hrl.ago(50)}])),
        "resume": start if draw(flags) else None,
        "driver.cause": draw(st.sampled_from([None, "OutOfMemory", "RestartAtZero", "Novel"])),
        "volumes": {"traces": {"freeBytes": 1, "neededBytes": 2, "low": draw(flags)}},
    }


REQUEST = {"metadata": {"name": "quickstart-request", "namespace": "research", "uid": "cm-9"}}


def mostly(usual: Any, *others: Any) -> st.SearchStrategy[Any]:
    """`usual` three times out of four: where every part is odd, no job gets far."""
    return st.sampled_from([usual] * 3 * len(others) + [*others])


@st.composite
def worlds(draw: st.DrawFn, job: HarborRLJob) -> Observed:
    attempt = max(job.status.attempt, 1)
    number = mostly(attempt, 1, 2)
    roles = draw(mostly(["head", "worker"], [], ["head"], ["worker"], ["head", "head", "worker"]))
    pods = [
        hrl.trainer_pod(
            role,
            attempt=draw(number),
            phase=draw(mostly("Running", "Pending", "Failed")),
            terminating=draw(mostly(False, True)),
        )
        for role in roles
    ]
    report = hrl.progress(
        draw(mostly("RUNNING", "STARTING", "PENDING", "SUCCEEDED", "FAILED", "STOPPED")),
        draw(reports()),
        attempt=draw(number),
        incarnation=draw(mostly(job.status.incarnation or 1, 1, 2, 3)),
        failure=draw(failures),
    )
    ended = draw(mostly(0, None, 1, 137))
    pod = hrl.preflight_pod(job, attempt=attempt, exit_code=ended, message=hrl.PASSED if ended == 0 else "")
    has_cluster = draw(flags)
    cluster_of = draw(number)
    cluster = hrl.ray_cluster(job, cluster_of, suspend=draw(mostly(False, True)))
    cluster["metadata"]["labels"] = draw(st.sampled_from([{}, {"kueue.x-k8s.io/queue-name": "h200"}]))
    conditions = draw(st.sampled_from([[], kueue.waiting(), kueue.admitted(200), kueue.preempted()]))
    ready = hrl.deployment(draw(mostly(job, hrl.job())), ready=draw(mostly(True, False)))
    return hrl.world(
        deployment=draw(mostly(ready, None)),
        preflight_pod=draw(mostly(pod, None)),
        ray_clusters={f"quickstart-a{cluster_of}": cluster} if has_cluster else {},
        workloads={f"rc-{cluster_of}": kueue.workload(conditions)} if draw(flags) else {},
        trainer_pods=tuple(pods) if draw(mostly(has_cluster, not has_cluster)) else (),
        progress=draw(mostly(report, None)),
        progress_exists=True,
        request=REQUEST if draw(flags) else None,
        claims={"harborrl-data": draw(mostly(hrl.claim(), None))},
    )


@st.composite
def histories(draw: st.DrawFn) -> tuple[HarborRLJob, list[tuple[Observed, Plan]]]:
    """A job and the passes over a few arbitrary worlds, each beginning with the status of the one before.

    A world may stay as it is for long. Between two passes the job's owner may set or take back the suspend.
    """
    job = hrl.job(draw(specs()))
    passes: list[tuple[Observed, Plan]] = []
    now = hrl.NOW
    for _ in range(draw(st.integers(1, PASSES))):
        stays = bool(passes) and draw(flags)
        seen = passes[-1][0] if stays else draw(worlds(job))
        now += timedelta(seconds=draw(st.integers(600, LONGEST_PASS) if stays else st.integers(0, 900)))
        decided = plan(job, seen, hrl.SETTINGS, now)
        passes.append((seen, decided))
        job = hrl.then(job, decided, suspend=draw(mostly(False, True)))
    return job, passes


def test_histories_come_to_every_phase_make_ray_clusters_and_stall() -> None:
    """Else the properties below would hold of nothing.

    What is drawn depends on more than a seed (hypothesis takes constants from whatever modules are imported), so rounds
    go on until all was met; most often the second is the last.
    """
    # Pending is before the first pass; others' demand is of the surroundings.
    wanted = {*Phase, "RayCluster", *ConditionType} - {Phase.PENDING, ConditionType.CAPACITY_TIGHT}
    met: set[str] = set()
    for number in range(20):
        met |= met_in_round(number)
        if met >= wanted:
            return
    assert wanted - met == set()


def met_in_round(number: int) -> set[str]:
    met: set[str] = set()

    @seed(number)
    @settings(max_examples=200, deadline=None, derandomize=False, database=None)
    @given(histories())
    def note(history: tuple[HarborRLJob, list[tuple[Observed, Plan]]]) -> None:
        for _, decided in history[1]:
            met.update({decided.status.phase, *(thing["kind"] for thing in decided.apply)})
            met.update(kind for kind, status in conditions(decided).items() if status == "True")

    note()
    return met


@given(histories())
@settings(max_examples=100, deadline=None)
def test_a_ray_cluster_is_applied_only_when_there_is_none_and_no_trainer_pod_is_left(
    history: tuple[HarborRLJob, list[tuple[Observed, Plan]]],
) -> None:
    for seen, decided in history[1]:
        made = [thing for thing in decided.apply if thing["kind"] == "RayCluster"]
        assert len(made) <= 1
        for cluster in made:
            assert cluster["metadata"]["name"] not in seen.ray_clusters
            assert seen.trainer_pods == ()


@given(histories())
@settings(max_examples=100, deadline=None)
def test_the_same_world_seen_twice_at_the_same_moment_settles(
    history: tuple[HarborRLJob, list[tuple[Observed, Plan]]],
) -> None:
    job, passes = history
    seen = passes[-1][0]
    later = hrl.NOW + timedelta(seconds=50_000)
    statuses = []
    for _ in range(6):
        decided = plan(job, seen, hrl.SETTINGS, later)
        statuses.append(decided.status)
        job = hrl.then(job, decided)
    assert statuses[-1] == statuses[-2]


@given(histories())
@settings(max_examples=100, deadline=None)
def test_nothing_is_applied_and_deleted_in_one_pass(history: tuple[HarborRLJob, list[tuple[Observed, Plan]]]) -> None:
    for _, decided in history[1]:
        applied = {(thing["kind"], thing["metadata"]["name"]) for thing in decided.apply}
        deleted = {(reference.kind, reference.name) for reference in decided.delete}
        assert not applied & deleted


@given(histories())
@settings(max_examples=100, deadline=None)
def test_a_finished_job_says_exactly_one_of_succeeded_and_failed(
    history: tuple[HarborRLJob, list[tuple[Observed, Plan]]],
) -> None:
    for _, decided in history[1]:
        true = {c.type.value for c in decided.status.conditions if c.status == "True"}
        assert ("Finished" in true) == (len(true & {"Succeeded", "Failed"}) == 1)
        assert ("Finished" in true) == (decided.status.finished_at is not None)


def conditions(decided: Plan) -> dict[str, str]:
    return {c.type.value: c.status for c in decided.status.conditions}


@given(histories())
@settings(max_examples=100, deadline=None)
def test_no_pass_drops_a_condition(history: tuple[HarborRLJob, list[tuple[Observed, Plan]]]) -> None:
    for _, decided in history[1]:
        assert list(conditions(decided)) == [kind.value for kind in ConditionType]


@given(histories())
@settings(max_examples=100, deadline=None)
def test_a_settled_pass_asks_for_the_same_objects_again(
    history: tuple[HarborRLJob, list[tuple[Observed, Plan]]],
) -> None:
    job, passes = history
    seen = passes[-1][0]
    later = hrl.NOW + timedelta(seconds=50_000)
    decided = [plan(job, seen, hrl.SETTINGS, later)]
    for _ in range(6):
        job = hrl.then(job, decided[-1])
        decided.append(plan(job, seen, hrl.SETTINGS, later))
    assert (decided[-1].apply, decided[-1].delete) == (decided[-2].apply, decided[-2].delete)


@given(histories())
@settings(max_examples=100, deadline=None)
def test_counts_of_time_failures_and_losses_never_fall(
    history: tuple[HarborRLJob, list[tuple[Observed, Plan]]],
) -> None:
    counted = [(0, 0, 0, 0, 0.0)]
    for _, decided in history[1]:
        status = decided.status
        failed = status.failures or FailureCounts()
        lost = status.lost or LossStatus()
        counted.append(
            (
                status.attempt,
                status.active_seconds,
                failed.infrastructure + failed.application + failed.storage,
                lost.rollouts,
                lost.gpu_hours,
            )
        )
    for before, after in pairwise(counted):
        assert all(was <= now for was, now in zip(before, after, strict=True))
    assert counted[-1][1] <= PASSES * LONGEST_PASS


@given(histories())
@settings(max_examples=100, deadline=None)
def test_what_is_suspended_holds_nothing_and_what_does_not_run_does_not_stall(
    history: tuple[HarborRLJob, list[tuple[Observed, Plan]]],
) -> None:
    for seen, decided in history[1]:
        said = conditions(decided)
        if said["Suspended"] == "True":
            assert (decided.apply, seen.trainer_pods) == ((), ())
            left = [cluster for cluster in seen.ray_clusters.values() if "deletionTimestamp" not in cluster["metadata"]]
            assert len([gone for gone in decided.delete if gone.kind == "RayCluster"]) == len(left)
        if said["Stalled"] == "True":
            assert decided.status.phase == "Running"


@given(
    name=st.from_regex(r"[a-z]([-a-z0-9]{0,41}[a-z0-9])?", fullmatch=True),
    attempt=st.integers(1, 3 * 99),
    claim=st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True),
)
@settings(max_examples=100, deadline=None)
def test_every_derived_name_and_label_is_valid_for_every_valid_job_name(name: str, attempt: int, claim: str) -> None:
    job = hrl.job({"storage": {"models": {"pvc": claim}}}, name=name)
    job = HarborRLJob(job.namespace, name, job.uid, 1, job.spec, job.status.model_copy(update={"attempt": attempt}))
    pod = hrl.preflight_pod(job, attempt=attempt, exit_code=0, message=hrl.PASSED)
    claims = {"harborrl-data": hrl.claim(), claim: hrl.claim(claim)}
    server = next(t for t in hrl.decide(job, hrl.world(claims=claims)).apply if t["kind"] == "Deployment")
    seen = hrl.world(deployment=hrl.started(server), preflight_pod=pod, claims=claims)
    decided = hrl.decide(job, seen)
    kinds = [thing["kind"] for thing in decided.apply]
    assert "RayCluster" in kinds
    for thing in (*decided.apply, stop_request(job, "r", attempt, 1)):
        assert NAME.fullmatch(thing["metadata"]["name"]), thing["metadata"]["name"]
        assert len(thing["metadata"]["name"]) <= LONGEST.get(thing["kind"], 63)
        for value in thing["metadata"].get("labels", {}).values():
            assert LABEL.fullmatch(value), value


ENDINGS = ("", "-agent", "-agents", "-trainer", "-a1", "-a1-head", "-deny", "-preflight", "-supervisor", "-server")


@given(
    first=st.sampled_from(("q", "q-agent", "harborrl-trainer", "trainer")),
    ending=st.sampled_from(ENDINGS),
    account=st.sampled_from((None, "q", "q-trainer", "supervisor-q", "trainer")),
)
@settings(max_examples=100, deadline=None)
def test_no_two_objects_of_one_job_or_of_two_share_a_name_unless_they_are_one(
    first: str, ending: str, account: str | None
) -> None:
    """Accounts and bindings of a namespace are the same object for all its jobs."""
    made: dict[tuple[str, str, str], Any] = {}
    for number, name in enumerate(sorted({first, first + ending})):
        changes: dict[str, Any] = {"trainer.serviceAccountName": account} if account else {}
        job = hrl.job(changes, name=name)
        job = HarborRLJob(job.namespace, name, f"{number}{job.uid[1:]}", 1, job.spec, job.status)
        pod = hrl.preflight_pod(job, exit_code=0, message=hrl.PASSED)
        server = next(t for t in hrl.decide(job, hrl.world()).apply if t["kind"] == "Deployment")
        decided = hrl.decide(job, hrl.world(deployment=hrl.started(server), preflight_pod=pod))
        assert "RayCluster" in [thing["kind"] for thing in decided.apply]
        for thing in decided.apply:
            meta = thing["metadata"]
            assert made.setdefault((thing["kind"], meta["namespace"], meta["name"]), thing) == thing
