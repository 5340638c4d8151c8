"""What this operator leaves out on purpose, because others were hurt by it: held against everything that it plans."""

from collections.abc import Iterator
from typing import Any

import pytest

from support import hrl
from support.hrl import decide, then

SPECS = {"quickstart": hrl.QUICKSTART_SPEC, "design": hrl.DESIGN_SPEC}


def planned(base: dict[str, Any]) -> list[dict[str, Any]]:
    """All that a job gets, from its first pass to its RayCluster."""
    job = hrl.job(base=base)
    names = {volume["pvc"] for volume in base.get("storage", {}).values()} | {"harborrl-data"}
    claims = {name: hrl.claim(name) for name in names}
    first = decide(job, hrl.world(claims=claims))
    server = hrl.started(next(thing for thing in first.apply if thing["kind"] == "Deployment"))
    server["metadata"]["labels"] = next(t for t in first.apply if t["kind"] == "Deployment")["metadata"]["labels"]
    seen = {"claims": claims, "deployment": server}
    waits = then(job, first)
    second = decide(waits, hrl.world(**seen))
    job = then(waits, second)
    passed = hrl.preflight_pod(job, exit_code=0, message=hrl.PASSED)
    third = decide(job, hrl.world(**seen, preflight_pod=passed))
    return [*first.apply, *second.apply, *third.apply]


def fields(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, one in value.items():
            yield key
            yield from fields(one)
    elif isinstance(value, list):
        for one in value:
            yield from fields(one)


@pytest.mark.parametrize("base", SPECS.values(), ids=SPECS)
class TestOfAllThatAJobGets:
    def test_nothing_is_left_out_of_this_look(self, base: dict[str, Any]) -> None:
        assert {"Deployment", "Pod", "RayCluster"} <= {thing["kind"] for thing in planned(base)}

    def test_no_kind_is_made_that_submits_or_retries_by_itself(self, base: dict[str, Any]) -> None:
        """A RayJob submits again when its dashboard forgets, a Job is a workload of its own under Kueue."""
        assert {"RayJob", "RayService", "Job", "CronJob"} & {thing["kind"] for thing in planned(base)} == set()

    def test_no_object_has_a_finalizer_that_somebody_would_have_to_remove(self, base: dict[str, Any]) -> None:
        assert [thing["metadata"]["name"] for thing in planned(base) if "finalizers" in thing["metadata"]] == []

    def test_no_autoscaler_decides_how_many_pods_train(self, base: dict[str, Any]) -> None:
        ray = next(thing for thing in planned(base) if thing["kind"] == "RayCluster")
        assert {"enableInTreeAutoscaling", "autoscalerOptions"} & set(fields(ray)) == set()
        for group in ray["spec"].get("workerGroupSpecs", ()):
            assert group["replicas"] == group["minReplicas"] == group["maxReplicas"]

    def test_no_submitter_stands_between_the_job_and_its_verdict(self, base: dict[str, Any]) -> None:
        ray = next(thing for thing in planned(base) if thing["kind"] == "RayCluster")
        assert {"submissionMode", "submitterPodTemplate", "entrypoint"} & set(fields(ray["spec"])) == set()


class TestAStarvedHead:
    """kuberay#4285: a head without CPU does not answer its probes for a while."""

    def test_is_no_end_of_the_attempt(self) -> None:
        job = hrl.job()
        runs = decide(job, hrl.running_world(job, progress=hrl.progress()))
        starved = (hrl.trainer_pod("head", ready=False), hrl.trainer_pod("worker", ready=False))
        seen = hrl.running_world(job, progress=hrl.progress(), trainer_pods=starved)
        later = decide(then(job, runs), seen, after=120)
        assert (later.status.phase, later.status.attempt) == ("Running", 1)
        assert hrl.condition(later, "TrainerReady")[0] == "False"
        assert later.delete == ()


class TestAnInitContainer:
    """kuberay#2735, #5138: what KubeRay puts before Ray can itself run out of memory, or take long."""

    def test_that_runs_out_of_memory_is_named(self) -> None:
        job = hrl.job()
        ended = {"lastState": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}
        waits = {"name": "wait-gcs-ready", "restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
        worker = hrl.trainer_pod("worker", phase="Pending", ready=False, initContainerStatuses=[waits | ended])
        seen = hrl.running_world(job, trainer_pods=(hrl.trainer_pod("head"), worker))
        said = hrl.message(decide(job, seen), "TrainerReady")
        assert "wait-gcs-ready" in said
        assert "memory" in said.lower() or "OOMKilled" in said
