"""The life of a job that goes well, step by step, and its suspension and end."""

import pytest

from support import hrl
from support.hrl import applied, condition, decide, deleted, message, then


def test_a_new_job_gets_its_rights_names_document_and_agent_server_and_no_gpu() -> None:
    decided = decide(hrl.job(), hrl.world())
    assert applied(decided) == [
        "ServiceAccount/harborrl-trainer",
        "RoleBinding/harborrl-trainer",
        "Role/harborrl-supervisor-quickstart",
        "RoleBinding/harborrl-supervisor-quickstart",
        "ServiceAccount/harborrl-agent-server",
        "RoleBinding/harborrl-agent-server",
        "RoleBinding/harborrl-sandboxes-research",
        "Service/quickstart-trainer",
        *(f"NetworkPolicy/quickstart-{of}" for of in ("deny", "agent-server", "preflight", "trainer", "head")),
        "PodDisruptionBudget/quickstart-trainer",
        "PodDisruptionBudget/quickstart-agent-server",
        "Service/quickstart-agent",
        "Service/quickstart-agents",
        hrl.SERVER,
        "ConfigMap/quickstart-config",
    ]
    assert decided.status.phase == "StartingAgentServer"
    assert condition(decided, "Admitted") == ("Unknown", "AwaitingPreflight")


def test_the_accounts_are_not_owned_by_the_job_and_everything_else_in_its_namespace_is() -> None:
    for thing in decide(hrl.job(), hrl.world()).apply:
        owned = "ownerReferences" in thing["metadata"]
        of_the_namespace = ("harborrl-trainer", "harborrl-agent-server", "harborrl-sandboxes-research")
        assert owned == (thing["metadata"]["name"] not in of_the_namespace), thing["metadata"]["name"]


def test_the_preflight_starts_once_the_agent_server_is_ready() -> None:
    decided = decide(hrl.job(), hrl.world(deployment=hrl.deployment()))
    assert "Pod/quickstart-preflight" in applied(decided)
    assert decided.status.phase == "Preflight"
    assert condition(decided, "AgentServerReady") == ("True", "Ready")


def test_the_cluster_is_created_once_the_preflight_passed() -> None:
    job = hrl.job()
    pod = hrl.preflight_pod(job, exit_code=0, message=hrl.PASSED)
    decided = decide(job, hrl.world(deployment=hrl.deployment(), preflight_pod=pod))
    assert applied(decided)[-2:] == ["ConfigMap/quickstart-progress", "RayCluster/quickstart-a1"]
    assert decided.status.phase == "StartingTrainer"
    assert condition(decided, "Admitted") == ("True", "Admitted")


def test_a_cluster_that_exists_is_followed_and_never_applied_again() -> None:
    job = hrl.job()
    decided = decide(job, hrl.running_world(job))
    assert not [name for name in applied(decided) if name.startswith(("RayCluster", "ConfigMap"))]
    assert condition(decided, "TrainerReady") == ("True", "Ready")


def test_progress_reaches_status_and_the_step_column() -> None:
    job = hrl.job()
    decided = decide(job, hrl.running_world(job, progress=hrl.progress()))
    assert decided.status.phase == "Running"
    assert decided.status.step == "1/3"
    assert decided.status.rollout is not None
    assert decided.status.rollout.reward_mean == 0.375
    assert decided.status.trainer is not None
    assert decided.status.trainer.head_pod == "quickstart-a1-head"
    assert condition(decided, "Progressing") == ("True", "RolloutsAdvancing")
    assert decided.status.starting_since is None


def test_the_report_of_a_former_run_of_the_same_name_says_nothing_about_this_one() -> None:
    job = hrl.job()
    stale = hrl.progress("STOPPED", {"uid": "of the run before"}, attempt=1)
    decided = decide(job, hrl.running_world(job, progress=stale))
    assert not decided.status.step
    assert decided.status.rollout is None


def test_success_releases_everything_and_keeps_the_numbers() -> None:
    job = hrl.job()
    seen = hrl.running_world(job, progress=hrl.progress("SUCCEEDED", {"rollout.trained": 3}))
    decided = decide(job, seen)
    assert decided.status.phase == "Succeeded"
    assert condition(decided, "Finished") == condition(decided, "Succeeded") == ("True", "Completed")
    assert deleted(decided) == ["RayCluster/quickstart-a1", hrl.SERVER]
    assert decided.status.step == "3/3"
    assert "iter_0000000" in message(decided, "Succeeded")
    assert "research/quickstart-5f0c2a9e" in message(decided, "Succeeded")


def test_a_finished_job_stays_finished_whatever_its_spec_says_later() -> None:
    job = hrl.job()
    seen = hrl.running_world(job, progress=hrl.progress("SUCCEEDED"))
    finished = decide(job, seen)
    edited = then(job, finished, suspend=True)
    assert decide(edited, seen).status == finished.status


def test_a_finished_job_is_deleted_after_its_time_to_live_and_not_before() -> None:
    job = hrl.job({"ttlSecondsAfterFinished": 100})
    finished = then(job, decide(job, hrl.running_world(job, progress=hrl.progress("SUCCEEDED"))))
    assert deleted(decide(finished, hrl.world(), after=99)) == []
    assert decide(finished, hrl.world(), after=99).requeue_after == pytest.approx(1)
    assert deleted(decide(finished, hrl.world(), after=101)) == ["HarborRLJob/quickstart"]


def test_what_a_deleted_job_of_the_same_name_left_is_removed_before_anything_is_applied() -> None:
    """An apply would adopt its report, whose SUCCEEDED would end the new run at once."""
    job = hrl.job()
    report = {"metadata": {"name": "quickstart-progress", "namespace": "research", "uid": "cm-1"}}
    seen = hrl.world(predecessors=(("ConfigMap", report), ("Pod", hrl.trainer_pod(terminating=True))))
    decided = decide(job, seen)
    assert decided.apply == ()
    assert deleted(decided) == ["ConfigMap/quickstart-progress"]
    assert condition(decided, "AgentServerReady") == ("False", "WaitingForOldPods")
    late = decide(then(job, decided), seen, after=job.spec.trainer.start_deadline_seconds + 1)
    assert condition(late, "Failed") == ("True", "StartDeadlineExceeded")


def test_an_object_that_no_job_made_is_never_taken_over() -> None:
    decided = decide(hrl.job(), hrl.world(strangers=("ConfigMap quickstart-config",)))
    assert condition(decided, "Admitted") == ("False", "NameTaken")
    assert "ConfigMap quickstart-config" in message(decided, "Admitted")
    assert decided.apply == ()


def test_an_own_server_gets_no_deployment_and_preflight_judges_it() -> None:
    decided = decide(hrl.job(hrl.BROUGHT), hrl.world())
    servers = [name for name in applied(decided) if "agent" in name and not name.startswith("NetworkPolicy")]
    assert servers == []
    assert "Pod/quickstart-preflight" in applied(decided)
    assert condition(decided, "AgentServerReady") == ("True", "ExternalServer")


def test_an_edit_during_an_attempt_changes_nothing_that_runs_and_is_said() -> None:
    job = hrl.job()
    seen = hrl.running_world(job, progress=hrl.progress())
    edited = hrl.job({"trainer.config.lr": 1e-6}, generation=2)
    decided = decide(edited, seen)
    assert not {name.partition("/")[0] for name in applied(decided)} & {"RayCluster", "Pod", "ConfigMap"}
    assert (hrl.SERVER in applied(decided), deleted(decided)) == (True, [])
    assert deleted(decided) == []
    assert decided.status.phase == "Running"
    assert "takes effect with the next attempt or resume" in message(decided, "Admitted")


def test_a_report_that_somebody_deleted_is_made_again_whatever_was_edited() -> None:
    job = hrl.job()
    for changes in ({"trainer.maxSeqLen": 4096}, {"trainer.extraArgs": "--save /x"}):
        decided = decide(hrl.job(changes), hrl.running_world(job, progress_exists=False))
        assert "ConfigMap/quickstart-progress" in applied(decided)


def test_an_edit_that_would_be_refused_does_not_stop_the_run() -> None:
    job = hrl.job()
    seen = hrl.running_world(job, progress=hrl.progress())
    decided = decide(hrl.job({"rollout.agentTrialTimeoutSeconds": 600}, generation=2), seen)
    assert decided.status.phase == "Running"
    assert "BudgetExceedsCeiling" in message(decided, "Admitted")


def test_a_queue_that_holds_the_cluster_back_stops_every_clock() -> None:
    job = hrl.job({"queueName": "h200"})
    seen = hrl.running_world(job, ray_clusters={"quickstart-a1": hrl.ray_cluster(job, suspend=True)}, trainer_pods=())
    decided = decide(job, seen)
    assert condition(decided, "TrainerReady") == ("False", "Queued")
    assert decided.status.starting_since is None
    assert decide(then(job, decided), seen, after=10_000_000).status.phase == "Queued"


def test_all_condition_types_are_present_from_the_first_pass_on() -> None:
    kinds = [c.type.value for c in decide(hrl.job(), hrl.world()).status.conditions]
    assert kinds == [
        "Admitted",
        "AgentServerReady",
        "TrainerReady",
        "Progressing",
        "CapacityTight",
        "Stalled",
        "Resumed",
        "LowSpace",
        "Suspended",
        "Finished",
        "Succeeded",
        "Failed",
    ]
