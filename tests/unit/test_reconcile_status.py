"""What the API server refuses and what the watch no longer tells is said, once."""

from datetime import UTC, datetime

import pytest

from harborrl_operator.errors import ClusterError
from harborrl_operator.liveness import LONGEST_AGE_SECONDS, WATCHED, Liveness, heartbeat
from harborrl_operator.models import InvalidJobError, parse_job
from harborrl_operator.reconcile import with_failures
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
    assert with_failures(job.status, finished, [QUOTA], LATER) == finished


def test_an_unreadable_spec_names_each_field() -> None:
    raw = {"metadata": {"namespace": "n", "name": "x", "uid": "u"}, "spec": {"data": {}, "oops": 1}}
    with pytest.raises(InvalidJobError, match=r"spec\.model: Field required.*spec\.oops"):
        parse_job(raw)


class TestLiveness:
    def test_fails_when_our_own_heartbeat_no_longer_comes_back(self) -> None:
        now = 0.0
        liveness = Liveness(lambda: now)
        now = LONGEST_AGE_SECONDS
        assert liveness.fault(set(WATCHED)) is None
        now += 1
        assert "heartbeat was last seen 101 s ago" in str(liveness.fault(set(WATCHED)))
        liveness.seen()
        assert liveness.fault(set(WATCHED)) is None

    def test_names_the_resource_whose_watcher_is_gone(self) -> None:
        liveness = Liveness(lambda: 0.0)
        assert liveness.fault(set(WATCHED) - {"rayclusters"}) == "no watcher for rayclusters"

    def test_the_heartbeat_is_selected_by_the_watch_and_belongs_to_no_job(self) -> None:
        assert heartbeat("ns", 1)["metadata"]["labels"]["harborrl.dev/job"] == ""
