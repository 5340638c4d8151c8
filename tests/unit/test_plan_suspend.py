"""A suspend asks for a checkpoint, waits within bounds, releases everything, and says what was lost."""

import json
from pathlib import Path
from typing import Any

import pytest

from harborrl_operator.draft import Plan
from harborrl_operator.models import HarborRLJob
from harborrl_operator.observed import Observed
from harborrl_operator.transitions import transitions
from support import hrl
from support.hrl import applied, condition, decide, deleted, message, then

CONTRACT = json.loads((Path(__file__).resolve().parents[1] / "contract" / "request.json").read_text())
REQUEST = {"metadata": {"name": "quickstart-request", "namespace": "research", "uid": "cm-9"}}


def job(changes: dict[str, Any] | None = None) -> HarborRLJob:
    """A job whose driver runs and which is then suspended."""
    running = hrl.job(changes)
    return then(running, decide(running, running_world(running)), suspend=True)


def running_world(of: HarborRLJob, state: str = "RUNNING", changes: dict[str, Any] | None = None) -> Observed:
    return hrl.running_world(of, progress=hrl.progress(state, changes))


def stopped(**changes: Any) -> Observed:
    """All pods have ended; the driver's last word is that it stopped."""
    saved = {"rollout.trained": 2, "checkpoint.rolloutId": 1} | changes
    return hrl.world(deployment=hrl.deployment(), progress=hrl.progress("STOPPED", saved), progress_exists=True)


class TestARunningDriver:
    def test_is_asked_to_save_and_nothing_is_released_yet(self) -> None:
        asked = decide(job(), running_world(job()))
        assert (applied(asked), deleted(asked)) == (["ConfigMap/quickstart-request"], [])
        assert asked.status.phase == "Suspending"
        assert condition(asked, "Suspended") == ("False", "Suspending")
        assert "2026-01-01T13:00:00Z" in message(asked, "Suspended")
        assert "1 rollouts are trained, a resume would go on at rollout 1" in message(asked, "Suspended")

    def test_is_asked_in_the_contracts_words(self) -> None:
        (request,) = decide(job(), running_world(job())).apply
        ours = json.loads(request["data"]["request"])
        assert ours.keys() == CONTRACT.keys()
        assert ours["stop"] == {"attempt": 1, "incarnation": 1}
        assert ours["uid"] == hrl.UID

    def test_is_asked_once_and_by_the_same_words_in_each_pass(self) -> None:
        first = decide(job(), running_world(job()))
        again = decide(then(job(), first, suspend=True), running_world(job()), after=100)
        assert again.apply == first.apply
        assert again.status == first.status

    @pytest.mark.parametrize("report", [None, "{torn"])
    def test_whose_report_is_gone_or_torn_is_asked_all_the_same(self, report: str | None) -> None:
        seen = hrl.running_world(job(), progress=report, progress_exists=report is not None)
        asked = decide(job(), seen)
        assert condition(asked, "Suspended") == ("False", "Suspending")
        expected = {"ConfigMap/quickstart-request"} | (set() if report else {"ConfigMap/quickstart-progress"})
        assert set(applied(asked)) == expected

    def test_that_stopped_is_released_at_once(self) -> None:
        asked = decide(job(), running_world(job()))
        released = decide(then(job(), asked, suspend=True), running_world(job(), "STOPPED"), after=7)
        assert set(deleted(released)) == {"RayCluster/quickstart-a1", hrl.SERVER}
        assert condition(released, "Suspended") == ("False", "Suspending")
        assert message(released, "Suspended") == "2 trainer pods save and end."

    def test_that_does_not_stop_is_released_when_the_wait_is_over(self) -> None:
        suspended = job({"checkpoint.suspendWaitSeconds": 60})
        asked = then(suspended, decide(suspended, running_world(suspended)), suspend=True)
        assert deleted(decide(asked, running_world(asked), after=59)) == []
        assert "RayCluster/quickstart-a1" in deleted(decide(asked, running_world(asked), after=60))

    def test_is_looked_at_again_when_the_wait_is_over(self) -> None:
        suspended = job({"checkpoint.suspendWaitSeconds": 20})
        assert decide(suspended, running_world(suspended)).requeue_after == pytest.approx(20)

    def test_that_finishes_meanwhile_has_succeeded(self) -> None:
        asked = then(job(), decide(job(), running_world(job())), suspend=True)
        assert decide(asked, running_world(asked, "SUCCEEDED")).status.phase == "Succeeded"

    def test_that_fails_meanwhile_has_failed_and_the_job_is_suspended_afterwards(self) -> None:
        asked = then(job(), decide(job(), running_world(job())), suspend=True)
        failed = decide(asked, running_world(asked, "FAILED"))
        assert failed.status.attempts[0].outcome == "Failed"
        assert decide(then(asked, failed), hrl.world()).status.phase == "Suspended"

    def test_whose_head_is_lost_meanwhile_is_not_waited_for(self) -> None:
        asked = then(job(), decide(job(), running_world(job())), suspend=True)
        lost = decide(asked, hrl.running_world(asked, trainer_pods=(), progress=hrl.progress()))
        assert "RayCluster/quickstart-a1" in deleted(lost)
        assert lost.status.attempt == 1


class TestASuspendedJob:
    def suspended(self, **changes: Any) -> Plan:
        asked = then(job(), decide(job(), running_world(job())), suspend=True)
        released = then(asked, decide(asked, running_world(asked, "STOPPED"), after=5))
        return decide(released, stopped(**changes), after=9)

    def test_says_where_a_resume_goes_on(self) -> None:
        done = self.suspended()
        assert done.status.phase == "Suspended"
        assert condition(done, "Suspended") == ("True", "Suspended")
        assert "at rollout 2" in message(done, "Suspended")
        assert done.status.attempts[0].lost_rollouts == 0

    def test_says_what_a_missed_checkpoint_cost_and_counts_it_once(self) -> None:
        done = self.suspended(**{"rollout.trained": 5})
        assert condition(done, "Suspended") == ("True", "CheckpointMissed")
        assert "3 rollouts" in message(done, "Suspended")
        assert "checkpoint.suspendWaitSeconds = 3600" in message(done, "Suspended")
        again = decide(then(job(), done, suspend=True), stopped(**{"rollout.trained": 5}), after=100)
        assert again.status == done.status
        assert again.status.attempts[0].lost_rollouts == 3
        assert again.status.lost is not None
        assert again.status.lost.rollouts == 3

    def test_warns_of_a_missed_checkpoint_by_an_event_and_not_of_a_good_one(self) -> None:
        for lost, kind in ((5, "Warning"), (2, "Normal")):
            done = self.suspended(**{"rollout.trained": lost})
            (event,) = transitions(decide(job(), running_world(job())).status, done.status)
            assert (event.kind, event.reason) == (kind, done.status.reason)

    def test_never_stalls_however_long_it_waits(self) -> None:
        later = decide(then(job(), self.suspended(), suspend=True), stopped(), after=3600)
        assert condition(later, "Stalled") == ("False", "NotRunning")
        assert later.requeue_after is None

    def test_has_no_column_left_of_it_once_it_runs_again(self) -> None:
        resumed = then(job(), self.suspended(), suspend=False)
        running = hrl.running_world(resumed, progress=hrl.progress(incarnation=2))
        decided = decide(resumed, running, after=60)
        assert (decided.status.phase, decided.status.reason) == ("Running", "RolloutsAdvancing")
        assert "uspend" not in decided.status.message
        assert condition(decided, "Suspended") == ("False", "NotSuspended")
        assert condition(decided, "Stalled") == ("False", "Moving")
        assert decided.status.suspension is None

    def test_is_over_in_every_condition_with_the_first_pass_after_the_resume(self) -> None:
        resumed = then(job(), self.suspended(), suspend=False)
        first = decide(resumed, stopped(), after=60)
        assert [one.type for one in first.status.conditions if one.message == "Suspended."] == []
        assert message(first, "Progressing") == "Starts again after a suspend."
        assert decide(then(resumed, first), stopped(), after=61).status.conditions == first.status.conditions

    def test_goes_on_in_the_same_attempt_as_another_incarnation(self) -> None:
        resumed = then(job(), self.suspended(), suspend=False)
        pod = hrl.preflight_pod(resumed, exit_code=0, message=hrl.PASSED)
        seen = hrl.world(
            deployment=hrl.deployment(), preflight_pod=pod, progress=hrl.progress("STOPPED"), progress_exists=True
        )
        decided = decide(resumed, seen, after=60)
        assert "RayCluster/quickstart-a1" in applied(decided)
        assert decided.status.attempt == 1

    def test_waits_on_resume_until_the_pods_that_the_suspend_ended_are_gone(self) -> None:
        resumed = then(job(), self.suspended(), suspend=False)
        pod = hrl.preflight_pod(resumed, exit_code=0, message=hrl.PASSED)
        ending = (hrl.trainer_pod(terminating=True),)
        decided = decide(resumed, hrl.world(deployment=hrl.deployment(), preflight_pod=pod, trainer_pods=ending))
        assert condition(decided, "TrainerReady") == ("False", "WaitingForOldPods")
        assert not [name for name in applied(decided) if name.startswith("RayCluster")]


def test_the_gpu_time_of_a_driver_that_never_answered_ends_with_the_grace_of_its_pods() -> None:
    """Released after a wait of 60 s, checkpoint.graceSeconds 30; the operator looks again a day later."""
    suspended = job({"checkpoint.suspendWaitSeconds": 60, "trainer.engine": "miles", "trainer.gpusPerNode": 8})
    asked = then(suspended, decide(suspended, running_world(suspended)), suspend=True)
    released = then(asked, decide(asked, running_world(asked), after=60), suspend=True)
    gone = hrl.world(deployment=hrl.deployment(), progress=hrl.progress(), progress_exists=True)
    lost = decide(released, gone, after=86_400).status.lost
    assert lost is not None
    assert lost.gpu_hours == pytest.approx(2 * 8 * 90 / 3600, abs=0.01)


def test_the_gpu_time_of_a_head_that_was_gone_before_the_suspend_ends_with_its_last_sign_of_life() -> None:
    report = hrl.progress(changes={"checkpoint": None, "observedAt": hrl.ago(-3600)})
    suspended = job({"trainer.engine": "miles", "trainer.gpusPerNode": 8})
    gone = hrl.world(deployment=hrl.deployment(), progress=report, progress_exists=True)
    lost = decide(suspended, gone, after=86_400).status.lost
    assert lost is not None
    assert lost.gpu_hours == pytest.approx(2 * 8, abs=0.01)


class TestASuspendTakenBack:
    def asked(self) -> HarborRLJob:
        return then(job(), decide(job(), running_world(job())), suspend=True)

    def seen(self, state: str) -> Observed:
        return hrl.running_world(job(), progress=hrl.progress(state), request=REQUEST)

    def test_withdraws_the_request_and_the_run_goes_on(self) -> None:
        resumed = then(self.asked(), decide(self.asked(), running_world(job())), suspend=False)
        decided = decide(resumed, self.seen("RUNNING"), after=3)
        assert deleted(decided) == ["ConfigMap/quickstart-request"]
        assert decided.status.phase == "Running"
        assert "taken back" in message(decided, "Suspended")

    def test_costs_no_attempt_when_the_driver_had_been_told_already(self) -> None:
        resumed = then(self.asked(), decide(self.asked(), running_world(job())), suspend=False)
        stopped_late = decide(resumed, self.seen("STOPPED"), after=3)
        assert set(deleted(stopped_late)) == {"ConfigMap/quickstart-request", "RayCluster/quickstart-a1"}
        assert stopped_late.status.attempt == 1
        gone = decide(then(resumed, stopped_late), stopped(), after=9)
        assert gone.status.attempt == 1
        assert "Pod/quickstart-preflight" in applied(gone)

    def test_of_a_job_that_stalled_again_leaves_no_stall_behind(self) -> None:
        resumed = then(self.asked(), decide(self.asked(), running_world(job())), suspend=False)
        stalled = decide(resumed, self.seen("RUNNING"), after=5000)
        assert condition(stalled, "Stalled")[0] == "True"
        stopped_late = decide(then(resumed, stalled), self.seen("STOPPED"), after=5010)
        assert condition(stopped_late, "Stalled") == ("False", "NotRunning")

    def test_takes_the_cluster_away_again_when_the_api_server_refused_to_the_first_time(self) -> None:
        resumed = then(self.asked(), decide(self.asked(), running_world(job())), suspend=False)
        first = decide(resumed, self.seen("STOPPED"), after=3)
        assert "RayCluster/quickstart-a1" in deleted(decide(then(resumed, first), self.seen("STOPPED"), after=9))

    def test_costs_no_attempt_when_the_cluster_went_and_the_status_that_says_so_was_lost(self) -> None:
        once = hrl.job({"retries.maxAttempts": 1})
        asked = then(once, decide(once, running_world(once)), suspend=True)
        resumed = then(asked, decide(asked, running_world(once)), suspend=False)
        ending = (hrl.trainer_pod(terminating=True),)
        gone = hrl.world(progress=hrl.progress("STOPPED"), progress_exists=True, trainer_pods=ending)
        decided = decide(resumed, gone, after=4)
        assert (decided.status.attempt, decided.status.finished_at, decided.status.failures) == (1, None, None)
        assert condition(decided, "TrainerReady") == ("False", "WaitingForOldPods")
        later = decide(
            then(resumed, decided), hrl.world(progress=hrl.progress("STOPPED"), progress_exists=True), after=9
        )
        assert later.status.attempt == 1
        assert hrl.SERVER in applied(later)

    def test_takes_a_released_cluster_away_that_the_api_server_kept(self) -> None:
        asked = self.asked()
        released = decide(asked, self.seen("STOPPED"), after=3)
        assert "RayCluster/quickstart-a1" in deleted(released)
        resumed = then(asked, released, suspend=False)
        for seconds in (6, 4000):
            decided = decide(resumed, self.seen("RUNNING"), after=seconds)
            assert "RayCluster/quickstart-a1" in deleted(decided)
            assert (decided.status.attempt, decided.status.finished_at) == (1, None)
            assert condition(decided, "TrainerReady") == ("False", "WaitingForOldPods")
            resumed = then(resumed, decided)

    def test_does_not_take_the_next_cluster_away_for_the_last_ones_report(self) -> None:
        resumed = then(self.asked(), decide(self.asked(), running_world(job())), suspend=False)
        gone_on = then(resumed, decide(resumed, self.seen("STOPPED"), after=3))
        anew = hrl.ray_cluster(job())
        anew["metadata"]["uid"] = "rc-next"
        seen = hrl.running_world(
            job(), ray_clusters={"quickstart-a1": anew}, trainer_pods=(), progress=hrl.progress("STOPPED")
        )
        decided = decide(gone_on, seen, after=20)
        assert deleted(decided) == []
        assert decided.status.attempt == 1
        begun = hrl.running_world(
            job(), ray_clusters={"quickstart-a1": anew}, progress=hrl.progress("FAILED", incarnation=2)
        )
        assert decide(then(gone_on, decided), begun, after=30).status.attempt == 2

    def test_and_given_again_asks_anew(self) -> None:
        resumed = then(self.asked(), decide(self.asked(), running_world(job())), suspend=False)
        back = decide(resumed, self.seen("RUNNING"), after=3)
        again = decide(then(resumed, back, suspend=True), running_world(job()), after=50)
        assert again.status.suspension is not None
        assert again.status.suspension.requested_at == "2026-01-01T12:00:50Z"


@pytest.mark.parametrize("state", ["STARTING", "PENDING"])
def test_a_driver_that_has_not_begun_is_not_waited_for(state: str) -> None:
    suspended = hrl.job({"suspend": True})
    decided = decide(suspended, running_world(suspended, state))
    assert set(deleted(decided)) == {"RayCluster/quickstart-a1", hrl.SERVER}


@pytest.mark.parametrize("suspend", [True, False])
def test_what_a_driver_reports_after_its_release_costs_nothing(suspend: bool) -> None:
    """It had not reported at all when it was released; its pod still ends, suspended or resumed meanwhile."""
    suspended = hrl.job({"suspend": True})
    released = decide(suspended, hrl.running_world(suspended))
    late = hrl.progress("FAILED", failure="infrastructure")
    ending = hrl.world(progress=late, progress_exists=True, trainer_pods=(hrl.trainer_pod(terminating=True),))
    later = decide(then(suspended, released, suspend=suspend), ending, after=5)
    assert (later.status.attempt, later.status.failures) == (1, None)
    gone = hrl.world(deployment=hrl.deployment(), progress=late, progress_exists=True)
    assert decide(then(suspended, later, suspend=False), gone, after=9).status.attempt == 1


def test_a_job_that_is_suspended_before_it_ever_ran_holds_nothing_from_the_start() -> None:
    decided = decide(hrl.job({"suspend": True}), hrl.world())
    assert (decided.apply, decided.delete) == ((), ())
    assert condition(decided, "Suspended") == ("True", "Suspended")
    assert "at rollout 0" in message(decided, "Suspended")


def test_a_cluster_that_its_queue_holds_back_is_released_without_a_question() -> None:
    suspended = job()
    held = {"quickstart-a1": hrl.ray_cluster(suspended, suspend=True)}
    decided = decide(suspended, hrl.running_world(suspended, ray_clusters=held, progress=hrl.progress()))
    assert "RayCluster/quickstart-a1" in deleted(decided)
