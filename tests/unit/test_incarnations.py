"""A trainer whose pods are made anew within one RayCluster: which of them are old, and what goes again and again."""

from typing import Any

import pytest

from harborrl_operator.draft import Plan
from harborrl_operator.models import HarborRLJob
from harborrl_operator.observed import Observed
from support import hrl
from support.hrl import condition, decide, deleted, then

LOST = hrl.progress("FAILED", failure="infrastructure", message="NCCL")


def job(changes: dict[str, Any] | None = None) -> HarborRLJob:
    return hrl.job({"queueName": "h200", "retries.maxAttempts": 10, **(changes or {})})


def running(of: HarborRLJob, *, queue: dict[str, Any] | None = None, **changes: Any) -> Observed:
    """In its queue, admitted; `queue` is what KubeRay says of the RayCluster."""
    cluster = hrl.ray_cluster(of, suspend=False, **(queue or {}))
    cluster["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "h200"}
    defaults = {"ray_clusters": {"quickstart-a1": cluster}, "progress": hrl.progress()}
    return hrl.running_world(of, **(defaults | changes))


def pod(role: str, uid: str, *, age: float = 0, name: str = "", **changes: Any) -> dict[str, Any]:
    """With a name of its own, unless it is given one."""
    thing = hrl.trainer_pod(role, **changes)
    thing["metadata"] |= {"name": name or f"{role}-{uid}", "uid": uid, "creationTimestamp": hrl.ago(age)}
    return thing


def begun(**changes: Any) -> HarborRLJob:
    of = job()
    return then(of, decide(of, running(of, **changes)))


def restarts(decided: Plan) -> int:
    return decided.status.attempts[-1].restarts


class TestPodsThatWereToldToEnd:
    OLD = (pod("head", "h1", age=100, phase="Failed", ready=False), pod("worker", "w1", age=100))

    def restarted(self) -> tuple[HarborRLJob, Plan]:
        before = begun(trainer_pods=self.OLD)
        decided = decide(before, running(before, progress=LOST, trainer_pods=self.OLD), after=60)
        return then(before, decided), decided

    def test_are_told_again_in_every_pass_until_they_go(self) -> None:
        job, first = self.restarted()
        assert deleted(first) == ["Pod/head-h1", "Pod/worker-w1"]
        for seconds in (65, 70):
            again = decide(job, running(job, progress=LOST, trainer_pods=self.OLD), after=seconds)
            assert deleted(again) == deleted(first)
            assert restarts(again) == 1
            job = then(job, again)

    def test_are_forgotten_once_they_are_gone(self) -> None:
        job, _ = self.restarted()
        left = decide(job, running(job, progress=LOST, trainer_pods=self.OLD[1:]), after=65)
        assert left.status.trainer is not None
        assert left.status.trainer.ending_pods == ["w1"]
        gone = decide(then(job, left), running(job, progress=LOST, trainer_pods=()), after=70)
        assert gone.status.trainer is not None
        assert gone.status.trainer.ending_pods == []

    def test_are_told_again_also_while_the_job_is_suspended(self) -> None:
        job, _ = self.restarted()
        new = (pod("head", "h2"), self.OLD[1])
        suspending = then(job, decide(job, running(job, progress=LOST, trainer_pods=new), after=65), suspend=True)
        report = hrl.progress(incarnation=2)
        decided = decide(suspending, running(suspending, progress=report, trainer_pods=new), after=70)
        assert decided.status.phase == "Suspending"
        assert deleted(decided) == ["Pod/worker-w1"]

    @pytest.mark.parametrize("skew", [-3, -1, 0, 1, 3])
    def test_are_told_from_new_ones_whatever_the_api_servers_clock_says(self, skew: int) -> None:
        """Stamped up to 3 s before the restart was decided, by a clock that is behind ours."""
        job, _ = self.restarted()
        new = (pod("head", "h2", age=-60 - skew), pod("worker", "w2", age=-60 - skew))
        decided = decide(
            job, running(job, progress=hrl.progress(incarnation=2), trainer_pods=(*new, *self.OLD)), after=62
        )
        assert condition(decided, "TrainerReady") == ("True", "Ready")
        assert decided.status.trainer is not None
        assert decided.status.trainer.head_pod == "head-h2"
        assert deleted(decided) == ["Pod/head-h1", "Pod/worker-w1"]
        lost = decide(then(job, decided), running(job, trainer_pods=(new[1],)), after=70)
        assert restarts(lost) == 2


def test_the_old_workers_of_a_replaced_head_are_told_again_in_every_pass() -> None:
    before = begun(trainer_pods=(pod("head", "h1", age=100), pod("worker", "w1", age=100)))
    seen = running(before, trainer_pods=(pod("head", "h2", age=1), pod("worker", "w1", age=100)))
    replaced = decide(before, seen)
    assert deleted(replaced) == ["Pod/worker-w1"]
    again = decide(then(before, replaced), seen, after=5)
    assert deleted(again) == ["Pod/worker-w1"]
    assert restarts(again) == 1
