"""What the API server refuses and what the watch no longer tells is said, once."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, override

import pytest

from harborrl_operator.cluster import Cluster
from harborrl_operator.errors import ClusterError
from harborrl_operator.faults import with_failures
from harborrl_operator.liveness import LONGEST_AGE_SECONDS, LONGEST_SILENCE_SECONDS, WATCHED, Liveness, heartbeat
from harborrl_operator.models import InvalidJobError, parse_job
from harborrl_operator.reconcile import Reconciler
from harborrl_operator.transitions import transitions
from support import hrl

LATER = datetime(2026, 1, 1, 12, 0, 30, tzinfo=UTC)
QUOTA = ClusterError("apply Deployment quickstart-agent", 403, "exceeded quota: none")


@pytest.mark.parametrize(
    ("action", "kind"),
    [
        ("apply Deployment x", "AgentServerReady"),
        ("apply RoleBinding x", "AgentServerReady"),
        ("apply RayCluster x", "TrainerReady"),
        ("apply Pod x", "Admitted"),
        ("apply ConfigMap x", "Admitted"),
    ],
)
def test_a_refused_object_shows_in_the_condition_of_its_part(action: str, kind: str) -> None:
    job = hrl.job()
    status = with_failures(job.status, hrl.decide(job, hrl.world()).status, [ClusterError(action, 403, "no")], LATER)
    found = next(c for c in status.conditions if c.type == kind)
    assert (found.status, found.reason) == ("False", "ApplyFailed")
    assert "no (HTTP 403)" in found.message
    assert status.reason == "ApplyFailed"


def test_a_refusal_that_lasts_writes_the_same_status_each_time() -> None:
    job = hrl.job()
    first = with_failures(job.status, hrl.decide(job, hrl.world()).status, [QUOTA], LATER)
    again = hrl.job(status=first)
    assert with_failures(first, hrl.decide(again, hrl.world(), after=60).status, [QUOTA], LATER) == first


def test_a_finished_verdict_is_not_overwritten_by_a_refused_deletion() -> None:
    job = hrl.job()
    finished = hrl.decide(job, hrl.running_world(job, progress=hrl.progress("SUCCEEDED"))).status
    told = with_failures(job.status, finished, [QUOTA], LATER)
    assert (told.phase, told.reason, told.message) == (finished.phase, finished.reason, finished.message)
    others = [[one for one in status.conditions if one.type != "TrainerReady"] for status in (told, finished)]
    assert others[0] == others[1]


def test_a_cluster_that_cannot_be_deleted_after_the_end_is_said_once_and_said_to_be_gone_when_it_is() -> None:
    job = hrl.job()
    refusal = ClusterError("delete RayCluster quickstart-a1", 403, "a webhook denied it")
    ended = hrl.decide(job, hrl.running_world(job, progress=hrl.progress("SUCCEEDED")))
    told = with_failures(job.status, ended.status, [refusal], hrl.NOW)
    held = next(one for one in told.conditions if one.type == "TrainerReady")
    assert (held.status, held.reason) == ("False", "ApplyFailed")
    assert "refused to delete RayCluster quickstart-a1: a webhook denied it" in held.message
    assert ("Warning", "ApplyFailed") in {(one.kind, one.reason) for one in transitions(ended.status, told)}
    over = hrl.job(status=told)
    again = hrl.decide(over, hrl.running_world(job), after=60)
    assert with_failures(told, again.status, [refusal], LATER) == told
    assert hrl.condition(again, "TrainerReady") == ("False", "Released")


def test_an_unreadable_spec_names_each_field() -> None:
    raw = {"metadata": {"namespace": "n", "name": "x", "uid": "u"}, "spec": {"data": {}, "oops": 1}}
    with pytest.raises(InvalidJobError, match=r"spec\.model: Field required.*spec\.oops"):
        parse_job(raw)


def test_a_phase_and_an_outcome_of_a_newer_operator_do_not_stop_its_jobs() -> None:
    ended = {"number": 1, "startedAt": hrl.ago(60), "finishedAt": hrl.ago(1), "outcome": "Preempted"}
    going = {"number": 2, "startedAt": hrl.ago(1), "outcome": "Migrating"}
    written = {"phase": "Migrating", "attempt": 2, "attempts": [ended, going]}
    meta = {"namespace": "research", "name": "quickstart", "uid": hrl.UID, "generation": 1}
    job = parse_job({"metadata": meta, "spec": hrl.QUICKSTART_SPEC, "status": written})
    assert [attempt.outcome for attempt in job.status.attempts] == ["Failed", "Running"]
    assert (
        hrl.decide(job, hrl.running_world(job, attempt=2, progress=hrl.progress(attempt=2))).status.phase == "Running"
    )


def test_a_status_of_a_newer_operator_does_not_stop_the_job() -> None:
    job = hrl.job()
    status = hrl.decide(job, hrl.world()).status.model_dump(by_alias=True, mode="json")
    newer = {"type": "Paused", "status": "True", "reason": "New", "lastTransitionTime": hrl.ago(1)}
    meta = {"namespace": "research", "name": "quickstart", "uid": hrl.UID, "generation": 1}
    raw = {
        "metadata": meta,
        "spec": hrl.QUICKSTART_SPEC,
        "status": {**status, "conditions": [*status["conditions"], newer]},
    }
    assert "Paused" not in {condition.type for condition in parse_job(raw).status.conditions}


class WithoutKubeRay(Cluster):
    """Holds one job; lists of RayClusters are not served."""

    def __init__(self) -> None:
        self.job: dict[str, Any] = {
            "metadata": {"namespace": "research", "name": "quickstart", "uid": hrl.UID, "generation": 1},
            "spec": hrl.QUICKSTART_SPEC,
        }
        self.writes = 0

    @override
    async def get(self, kind: str, namespace: str | None, name: str) -> dict[str, Any] | None:
        return self.job if kind == "HarborRLJob" else None

    @override
    async def find(
        self,
        kind: str,
        namespace: str | None,
        selector: str = "",
        fields: str = "",
    ) -> list[dict[str, Any]]:
        if kind == "RayCluster":
            raise ClusterError("list RayCluster", 404, "the server could not find the requested resource")
        return []

    @override
    async def apply(self, thing: Mapping[str, Any], *, subresource: str = "") -> dict[str, Any]:
        assert subresource == "status"
        self.writes += 1
        self.job = {**self.job, "status": thing["status"]}
        return self.job

    @override
    async def create(self, thing: Mapping[str, Any]) -> dict[str, Any]:
        return dict(thing)


async def test_a_cluster_without_kuberay_is_said_once_in_the_job() -> None:
    cluster = WithoutKubeRay()
    reconciler = Reconciler(cluster, hrl.SETTINGS, lambda: LATER)
    for _ in range(2):
        with pytest.raises(ClusterError):
            await reconciler.reconcile("research", "quickstart")
    assert cluster.writes == 1
    assert cluster.job["status"]["reason"] == "ApplyFailed"
    (trainer,) = cluster.job["status"]["conditions"]
    assert trainer["type"] == "TrainerReady"
    assert "Is KubeRay installed?" in trainer["message"]


async def test_a_spec_that_became_unreadable_is_said_once_and_takes_no_verdict_back() -> None:
    job = hrl.job()
    finished = hrl.decide(job, hrl.running_world(job, progress=hrl.progress("SUCCEEDED"))).status
    cluster = WithoutKubeRay()
    newer = {"type": "Paused", "status": "True", "reason": "New", "lastTransitionTime": hrl.ago(1)}
    status = finished.model_dump(by_alias=True, mode="json", exclude_none=True)
    status["conditions"].append(newer)
    cluster.job |= {"spec": {"oops": 1}, "status": status}
    reconciler = Reconciler(cluster, hrl.SETTINGS, lambda: LATER)
    for _ in range(2):
        assert await reconciler.reconcile("research", "quickstart") is None
    assert cluster.writes == 1
    left = {one["type"]: (one["status"], one["reason"]) for one in cluster.job["status"]["conditions"]}
    assert left["Admitted"] == ("False", "InvalidSpec")
    assert (left["Finished"], left["Succeeded"]) == (("True", "Completed"), ("True", "Completed"))
    assert "Paused" in left
    assert (cluster.job["status"]["phase"], cluster.job["status"]["reason"]) == ("Succeeded", "Completed")


async def test_a_new_job_that_cannot_be_read_is_refused_with_its_fields() -> None:
    cluster = WithoutKubeRay()
    cluster.job |= {"spec": {"oops": 1}}
    await Reconciler(cluster, hrl.SETTINGS, lambda: LATER).reconcile("research", "quickstart")
    status = cluster.job["status"]
    assert (status["phase"], status["reason"]) == ("Refused", "InvalidSpec")
    assert "spec.oops" in status["message"]


class TestLiveness:
    def test_fails_when_a_beat_that_was_written_does_not_come_back(self) -> None:
        now = 0.0
        liveness = Liveness(lambda: now)
        liveness.sent()
        now = LONGEST_AGE_SECONDS
        liveness.sent()
        assert liveness.fault(set(WATCHED)) is None
        now += 1
        assert "heartbeat of 101 s ago has not come back" in str(liveness.fault(set(WATCHED)))
        liveness.seen()
        assert liveness.fault(set(WATCHED)) is None

    def test_an_api_server_that_is_away_is_not_the_operators_fault_until_it_lasts(self) -> None:
        now = 0.0
        liveness = Liveness(lambda: now)
        liveness.sent()
        liveness.seen()
        now = LONGEST_SILENCE_SECONDS
        assert liveness.fault(set(WATCHED)) is None
        now += 1
        assert "no heartbeat could be written for 601 s" in str(liveness.fault(set(WATCHED)))

    def test_names_the_resource_whose_watcher_is_gone(self) -> None:
        liveness = Liveness(lambda: 0.0)
        assert liveness.fault(set(WATCHED) - {"pods"}) == "no watcher for pods"
        assert liveness.fault(set(WATCHED)) is None
        assert liveness.fault(set(WATCHED) - {"rayclusters"}) == "no watcher for rayclusters"

    def test_a_cluster_without_kuberay_does_not_restart_the_operator_for_ever(self) -> None:
        assert Liveness(lambda: 0.0).fault(set(WATCHED) - {"rayclusters"}) is None

    def test_a_task_of_ours_that_ended_is_a_fault(self) -> None:
        assert Liveness(lambda: 0.0).fault(set(WATCHED), ["queue"]) == "ended: queue"

    def test_the_heartbeat_is_selected_by_the_watch_and_belongs_to_no_job(self) -> None:
        assert heartbeat("ns", 1)["metadata"]["labels"]["harborrl.dev/job"] == ""
