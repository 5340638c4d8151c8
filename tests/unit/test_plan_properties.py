"""What must hold for every world that can be observed."""

import re
from datetime import timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from harborrl_operator.draft import Plan
from harborrl_operator.models import HarborRLJob
from harborrl_operator.observed import Observed
from harborrl_operator.plan import plan
from support import hrl

LABEL = re.compile(r"[a-z0-9A-Z]([-._a-z0-9A-Z]{0,61}[a-z0-9A-Z])?")
NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")

flags = st.booleans()
states = st.sampled_from(["STARTING", "PENDING", "RUNNING", "SUCCEEDED", "FAILED", "STOPPED"])
failures = st.sampled_from([None, "configuration", "infrastructure", "application", "storage"])


@st.composite
def specs(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "suspend": draw(flags),
        "retries.maxAttempts": draw(st.integers(1, 3)),
        "trainer.startDeadlineSeconds": draw(st.integers(1, 2000)),
        **({"agentServer.maxConcurrent": draw(st.integers(1, 16))} if draw(flags) else {}),
        **({"agentServer.url": "http://agents.team.svc:30000"} if draw(flags) else {}),
    }


@st.composite
def worlds(draw: st.DrawFn, job: HarborRLJob) -> Observed:
    attempt = draw(st.integers(1, 2))
    pods = [
        hrl.trainer_pod(
            role,
            attempt=draw(st.integers(1, 2)),
            phase=draw(st.sampled_from(["Pending", "Running", "Failed"])),
            terminating=draw(flags),
        )
        for role in draw(st.lists(st.sampled_from(["head", "worker"]), max_size=3))
    ]
    report = hrl.progress(draw(states), attempt=draw(st.integers(1, 2)), failure=draw(failures))
    ended = draw(st.sampled_from([None, 0, 1, 137]))
    pod = hrl.preflight_pod(job, attempt=attempt, exit_code=ended, message=hrl.PASSED if ended == 0 else "")
    return hrl.world(
        deployment=hrl.deployment(ready=draw(flags)) if draw(flags) else None,
        preflight_pod=pod if draw(flags) else None,
        ray_clusters={f"quickstart-a{attempt}": hrl.ray_cluster(job, attempt, suspend=draw(flags))}
        if draw(flags)
        else {},
        trainer_pods=tuple(pods),
        progress=report if draw(flags) else None,
        progress_exists=True,
        claims={"harborrl-data": hrl.claim() if draw(flags) else None},
    )


@st.composite
def histories(draw: st.DrawFn) -> tuple[HarborRLJob, list[tuple[Observed, Plan]]]:
    """A job and the passes over a few arbitrary worlds, each beginning with the status of the one before."""
    job = hrl.job(draw(specs()))
    passes = []
    for step in range(draw(st.integers(1, 4))):
        seen = draw(worlds(job))
        decided = plan(job, seen, hrl.SETTINGS, hrl.NOW + timedelta(seconds=step * draw(st.integers(0, 900))))
        passes.append((seen, decided))
        job = hrl.then(job, decided)
    return job, passes


@given(histories())
@settings(max_examples=150, deadline=None)
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
@settings(max_examples=150, deadline=None)
def test_the_same_world_seen_twice_at_the_same_moment_settles(
    history: tuple[HarborRLJob, list[tuple[Observed, Plan]]],
) -> None:
    job, passes = history
    seen = passes[-1][0]
    later = hrl.NOW + timedelta(seconds=5000)
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


@given(
    name=st.from_regex(r"[a-z]([-a-z0-9]{0,41}[a-z0-9])?", fullmatch=True),
    attempt=st.integers(1, 99),
    claim=st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True),
)
@settings(max_examples=60, deadline=None)
def test_every_derived_name_and_label_is_valid_for_every_valid_job_name(name: str, attempt: int, claim: str) -> None:
    job = hrl.job({"storage": {"models": {"pvc": claim}}}, name=name)
    job = HarborRLJob(job.namespace, name, job.uid, 1, job.spec, job.status.model_copy(update={"attempt": attempt}))
    pod = hrl.preflight_pod(job, attempt=attempt, exit_code=0, message=hrl.PASSED)
    claims = {"harborrl-data": hrl.claim(), claim: hrl.claim(claim)}
    decided = hrl.decide(job, hrl.world(deployment=hrl.deployment(), preflight_pod=pod, claims=claims))
    kinds = [thing["kind"] for thing in decided.apply]
    assert "RayCluster" in kinds
    for thing in decided.apply:
        assert NAME.fullmatch(thing["metadata"]["name"]), thing["metadata"]["name"]
        assert len(thing["metadata"]["name"]) <= 53
        for value in thing["metadata"].get("labels", {}).values():
            assert LABEL.fullmatch(value), value
