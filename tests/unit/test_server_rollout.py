"""A change of the agent server on a running job: which version serves, and what the job says meanwhile."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harborrl_operator.models import HarborRLJob
from harborrl_operator.observed import Observed
from harborrl_operator.server_rollout import next_step
from harborrl_operator.transitions import transitions
from support import hrl
from support.hrl import applied, applied_beside_policies, condition, decide, deleted, message, then

OLD = hrl.job()
NEW = hrl.job({"agentServer.image": "agents:2"}, generation=2)
NEWER = hrl.job({"agentServer.image": "agents:3"}, generation=3)
A, B, C = (hrl.agent_version(job) for job in (OLD, NEW, NEWER))
BAD_PULL: dict[str, Any] = {
    "containerStatuses": [{"name": "c", "image": "agents:2", "state": {"waiting": {"reason": "ImagePullBackOff"}}}]
}


def world(*servers: dict[str, Any], serving: str = A, of: HarborRLJob = OLD, **changes: Any) -> Observed:
    """A run of the old job that trains, with these agent servers."""
    by_version = {server["metadata"]["labels"]["harborrl.dev/agent-version"]: server for server in servers}
    seen: dict[str, Any] = {"agent_servers": by_version, "serving": serving, "progress": hrl.progress(), **changes}
    return hrl.running_world(of, deployment=None, **seen)


def selected(decided: Any) -> str:
    """The version that the applied Service selects."""
    service = next(t for t in decided.apply if (t["kind"], t["metadata"]["name"]) == ("Service", "quickstart-agent"))
    version: str = service["spec"]["selector"]["harborrl.dev/agent-version"]
    return version


def test_a_changed_template_starts_beside_the_version_that_serves() -> None:
    decided = decide(NEW, world(hrl.deployment(OLD)))
    assert f"Deployment/quickstart-agent-{B}" in applied(decided)
    assert f"Deployment/quickstart-agent-{A}" not in applied(decided)
    assert (selected(decided), deleted(decided)) == (A, [])
    assert condition(decided, "AgentServerReady") == ("True", "RollingOut")
    assert decided.status.phase == "Running"


CHANGES: dict[str, dict[str, Any]] = {
    "image": {"agentServer.image": "agents:2"},
    "resources": {"agentServer.resources": {"requests": {"cpu": 2}}},
    "a budget": {"agentServer.agentTimeoutSeconds": 200},
    "maxConcurrent upward": {"agentServer.maxConcurrent": 16},
    "podOverrides": {"agentServer.podOverrides": {"priorityClassName": "high"}},
    "the agent's arguments": {"agentServer.agentKwargs": {"maxTurns": 5}},
    "the sandboxes' place": {"agentServer.sandbox.nodeSelector": {"pool": "b"}},
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_running_job_takes_on_a_change_of(what: str) -> None:
    changed = hrl.job(CHANGES[what], generation=2)
    decided = decide(changed, world(hrl.deployment(OLD)))
    assert hrl.agent_version(changed) != A
    assert condition(decided, "AgentServerReady") == ("True", "RollingOut")
    assert "next attempt" not in message(decided, "Admitted")


def test_the_service_is_switched_once_the_new_version_is_ready_and_the_old_one_stays_until_that_was_seen() -> None:
    decided = decide(NEW, world(hrl.deployment(OLD), hrl.deployment(NEW)))
    assert (selected(decided), deleted(decided)) == (B, [])
    assert decided.requeue_after == 5.0
    after = decide(NEW, world(hrl.deployment(OLD), hrl.deployment(NEW), serving=B))
    assert (selected(after), deleted(after)) == (B, [f"Deployment/quickstart-agent-{A}"])


def test_the_old_pod_ends_its_trials_and_the_job_says_so() -> None:
    pod = hrl.agent_pod(OLD, terminating=True)
    decided = decide(NEW, world(hrl.deployment(NEW), serving=B, agent_pods=(pod,)))
    assert condition(decided, "AgentServerReady") == ("True", "Draining")
    assert pod["metadata"]["name"] in message(decided, "AgentServerReady")
    assert "900 s" in message(decided, "AgentServerReady")
    done = decide(NEW, world(hrl.deployment(NEW), serving=B))
    assert condition(done, "AgentServerReady") == ("True", "Ready")


def test_a_version_that_does_not_start_leaves_the_old_one_serving_and_says_why_and_what_to_do() -> None:
    pod = hrl.agent_pod(NEW, **BAD_PULL)
    decided = decide(NEW, world(hrl.deployment(OLD), hrl.deployment(NEW, ready=False), agent_pods=(pod,)))
    assert (selected(decided), deleted(decided)) == (A, [])
    assert condition(decided, "AgentServerReady") == ("True", "RolloutBlocked")
    for part in (A, B, "ImagePullFailed", "agents:2", "take the change back"):
        assert part in message(decided, "AgentServerReady")
    assert decided.status.phase == "Running"
    warned = transitions(then(OLD, decide(OLD, world(hrl.deployment(OLD)))).status, decided.status)
    assert ("Warning", "RolloutBlocked") in [(event.kind, event.reason) for event in warned]


def test_a_version_that_starts_and_never_becomes_ready_is_told_by_its_deployments_own_deadline() -> None:
    late = hrl.deployment(
        NEW,
        ready=False,
        conditions=[{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}],
    )
    decided = decide(NEW, world(hrl.deployment(OLD), late))
    assert condition(decided, "AgentServerReady") == ("True", "RolloutBlocked")
    assert selected(decided) == A


def test_taking_the_change_back_removes_the_version_that_never_served() -> None:
    decided = decide(OLD, world(hrl.deployment(OLD), hrl.deployment(NEW, ready=False)))
    assert (selected(decided), deleted(decided)) == (A, [f"Deployment/quickstart-agent-{B}"])
    assert condition(decided, "AgentServerReady") == ("True", "Ready")


def test_taking_the_change_back_after_the_switch_starts_the_old_template_again_while_its_first_pod_drains() -> None:
    draining = hrl.agent_pod(OLD, terminating=True)
    decided = decide(OLD, world(hrl.deployment(NEW), serving=B, agent_pods=(draining,)))
    assert f"Deployment/quickstart-agent-{A}" in applied(decided)
    assert (selected(decided), deleted(decided)) == (B, [])
    assert condition(decided, "AgentServerReady") == ("True", "RollingOut")


def test_a_change_during_a_start_supersedes_the_version_that_never_served() -> None:
    decided = decide(NEWER, world(hrl.deployment(OLD), hrl.deployment(NEW, ready=False)))
    assert f"Deployment/quickstart-agent-{C}" in applied(decided)
    assert (selected(decided), deleted(decided)) == (A, [f"Deployment/quickstart-agent-{B}"])


def test_a_change_during_a_drain_does_not_wait_for_it() -> None:
    draining = hrl.agent_pod(OLD, terminating=True)
    decided = decide(NEWER, world(hrl.deployment(NEW), serving=B, agent_pods=(draining,)))
    assert f"Deployment/quickstart-agent-{C}" in applied(decided)
    assert (selected(decided), deleted(decided)) == (B, [])


def test_an_edit_of_what_trainer_and_server_share_makes_the_agent_server_wait_for_the_next_attempt() -> None:
    both = hrl.job({"agentServer.image": "agents:2", "rollout.agentTrialTimeoutSeconds": 1200}, generation=2)
    decided = decide(both, world(hrl.deployment(OLD)))
    assert (applied_beside_policies(decided), deleted(decided)) == ([], [])
    assert condition(decided, "AgentServerReady") == ("True", "Ready")
    assert "next attempt" in message(decided, "Admitted")


UPGRADED = replace(hrl.SETTINGS, trainer_image="trainer:2", agent_server_image="agents:2")
"""The chart's image tags after a `helm upgrade`."""


def test_after_an_upgrade_of_the_chart_an_edit_of_the_agent_server_is_carried_out_and_the_trainer_waits() -> None:
    edited = hrl.job({"agentServer.agentKwargs": {"maxTurns": 9}}, generation=2)
    decided = decide(edited, world(hrl.deployment(OLD)), settings=replace(UPGRADED, agent_server_image=""))
    assert f"Deployment/quickstart-agent-{A}" not in applied(decided)
    assert [name for name in applied(decided) if name.startswith("Deployment/")] != []
    assert condition(decided, "AgentServerReady") == ("True", "RollingOut")
    assert "What the trainer would be made from now" in message(decided, "Admitted")


def test_after_an_upgrade_of_the_chart_what_somebody_deletes_is_made_again() -> None:
    decided = decide(OLD, world(), settings=UPGRADED)
    kinds = {name.partition("/")[0] for name in applied(decided)}
    assert {"Deployment", "Service", "Role", "RoleBinding", "PodDisruptionBudget"} <= kinds
    assert condition(decided, "AgentServerReady") == ("False", "Starting")


def test_another_default_claim_under_a_run_is_not_given_to_its_agent_server_alone() -> None:
    moved = replace(hrl.SETTINGS, default_claim="other")
    decided = decide(OLD, world(hrl.deployment(OLD), claims={"other": hrl.claim("other")}), settings=moved)
    assert applied_beside_policies(decided) == []
    assert "its agent server included" in message(decided, "Admitted")


def test_a_cluster_of_an_operator_that_knew_one_hash_only_lets_the_server_wait_for_any_change() -> None:
    cluster = hrl.ray_cluster(OLD)
    del cluster["metadata"]["annotations"]["harborrl.dev/shared-hash"]
    clusters = {"quickstart-a1": cluster}
    decided = decide(OLD, world(hrl.deployment(OLD), ray_clusters=clusters), settings=UPGRADED)
    assert applied_beside_policies(decided) == []
    decided = decide(NEW, world(hrl.deployment(OLD), ray_clusters=clusters))
    assert f"Deployment/quickstart-agent-{B}" in applied(decided)


def test_another_agents_name_waits_for_the_next_attempt_since_the_trainer_names_it_in_every_request() -> None:
    decided = decide(hrl.job({"agentServer.agentName": "nop"}, generation=2), world(hrl.deployment(OLD)))
    assert applied_beside_policies(decided) == []
    assert "next attempt" in message(decided, "Admitted")


def test_too_few_slots_are_refused_and_change_nothing_that_runs() -> None:
    decided = decide(hrl.job({"agentServer.maxConcurrent": 4}, generation=2), world(hrl.deployment(OLD)))
    assert (applied(decided), deleted(decided)) == ([], [])
    assert "ConcurrencyBelowInFlight" in message(decided, "Admitted")
    assert decided.status.phase == "Running"


def test_a_server_that_somebody_deleted_while_an_edit_waits_is_missed_aloud() -> None:
    edited = hrl.job({"rollout.agentTrialTimeoutSeconds": 1200}, generation=2)
    decided = decide(edited, world())
    assert condition(decided, "AgentServerReady") == ("False", "NotStarted")
    assert "suspend and resume" in message(decided, "AgentServerReady")


def test_a_job_that_has_not_begun_is_judged_with_the_version_that_it_asks_for() -> None:
    seen = hrl.world(agent_servers={A: hrl.deployment(OLD), B: hrl.deployment(NEW, ready=False)}, serving=A)
    decided = decide(NEW, seen)
    assert decided.status.phase == "StartingAgentServer"
    assert condition(decided, "AgentServerReady") == ("False", "Starting")
    ready = hrl.world(agent_servers={A: hrl.deployment(OLD), B: hrl.deployment(NEW)}, serving=A)
    assert selected(decide(NEW, ready)) == B
    switched = decide(NEW, hrl.world(agent_servers=ready.agent_servers, serving=B))
    assert switched.status.phase == "Preflight"
    assert deleted(switched) == [f"Deployment/quickstart-agent-{A}"]


def test_a_server_of_an_operator_that_knew_no_versions_is_replaced_like_any_other() -> None:
    legacy = hrl.deployment(OLD)
    del legacy["metadata"]["labels"]["harborrl.dev/agent-version"]
    seen = hrl.running_world(OLD, deployment=None, agent_servers={"": legacy}, serving="")
    starting = decide(OLD, seen)
    assert f"Deployment/quickstart-agent-{A}" in applied(starting)
    service = next(t for t in starting.apply if t["metadata"]["name"] == "quickstart-agent" and t["kind"] == "Service")
    assert "harborrl.dev/agent-version" not in service["spec"]["selector"]
    both = hrl.running_world(OLD, deployment=None, agent_servers={"": legacy, A: hrl.deployment(OLD)}, serving="")
    assert selected(decide(OLD, both)) == A


versions = st.sampled_from([A, B, C])


@given(
    wanted=versions,
    ready=st.dictionaries(versions, st.booleans()),
    serving=st.one_of(st.none(), versions),
)
@settings(max_examples=200, deadline=None)
def test_no_step_takes_the_trainers_last_ready_server_away(
    wanted: str, ready: dict[str, bool], serving: str | None
) -> None:
    """And from any mixture, passes over what each of them leaves end with the wanted version alone."""
    jobs = {A: OLD, B: NEW, C: NEWER}
    servers = {version: hrl.deployment(jobs[version], ready=is_ready) for version, is_ready in ready.items()}
    step = next_step(wanted, servers, serving)
    gone = {server["metadata"]["labels"]["harborrl.dev/agent-version"] for server in step.surplus}
    assert not gone & {wanted, step.serving, serving}
    if serving is not None and ready.get(serving):
        assert step.serving == serving or ready.get(step.serving)
    for _ in range(3):
        servers[wanted] = hrl.deployment(jobs[wanted])
        step = next_step(wanted, servers, serving)
        serving = step.serving
        for server in step.surplus:
            del servers[server["metadata"]["labels"]["harborrl.dev/agent-version"]]
    assert (serving, set(servers)) == (wanted, {wanted})


def test_a_server_that_is_down_with_none_beside_it_is_said_to_be_down() -> None:
    down = decide(OLD, world(hrl.deployment(OLD, ready=False)))
    assert condition(down, "AgentServerReady") == ("False", "Starting")


def refused(*servers: dict[str, Any], **changes: Any) -> Any:
    """A pass over a run that trains, while the claim of its volumes is being replaced."""
    begun = then(OLD, decide(OLD, world(hrl.deployment(OLD))))
    return decide(begun, world(*servers, claims={"harborrl-data": None}, **changes))


def test_a_server_that_crashes_is_said_to_while_the_next_attempt_would_be_refused() -> None:
    waiting = {
        "name": "agent-server",
        "image": "x",
        "ready": False,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
    }
    pod = hrl.agent_pod(OLD, phase="Running", containerStatuses=[waiting])
    decided = refused(hrl.deployment(OLD, ready=False), agent_pods=(pod,))
    assert "would be refused" in message(decided, "Admitted")
    assert condition(decided, "AgentServerReady") == ("False", "CrashLoop")


def test_a_server_that_is_gone_is_missed_aloud_while_the_next_attempt_would_be_refused() -> None:
    decided = refused()
    assert condition(decided, "AgentServerReady") == ("False", "NotStarted")
    assert "is not made again" in message(decided, "AgentServerReady")
    assert any(one.reason == "NotStarted" for one in decided.status.conditions)


def test_a_server_that_serves_is_ready_and_said_to_be_left_alone_while_the_next_attempt_would_be_refused() -> None:
    decided = refused(hrl.deployment(OLD))
    assert condition(decided, "AgentServerReady") == ("True", "Ready")
    assert "neither changed nor repaired" in message(decided, "AgentServerReady")


def test_a_pass_that_did_not_look_at_the_server_does_not_vouch_for_it() -> None:
    """The RayCluster is gone and its head was there: the loss is judged, not the server."""
    began = then(OLD, decide(OLD, world(hrl.deployment(OLD))))
    edited = hrl.job({"retries.maxAttempts": 5}, status=began.status, generation=2)
    decided = decide(edited, world(hrl.deployment(OLD), ray_clusters={}))
    server = next(one for one in decided.status.conditions if one.type == "AgentServerReady")
    assert server.observed_generation == 1
