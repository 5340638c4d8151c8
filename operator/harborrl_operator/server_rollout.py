"""The agent server and its change on a running job: the new version starts beside the old one, which ends its trials.

Which version serves is what the Service selects. A version is removed by deleting its Deployment: its pod gets SIGTERM
and as long as the longest trial (docs/contracts.md, "Agent server"). Pods that drain take part in no decision.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from harborrl_operator.conditions import Verdict
from harborrl_operator.constants import ConditionType, Reason
from harborrl_operator.draft import Draft
from harborrl_operator.models.status import AgentServerStatus
from harborrl_operator.observed import Object, condition_of, is_terminating, name_of, version_of
from harborrl_operator.problems import deployment_problem, first_pod_problem
from harborrl_operator.resolve import ResolvedJob
from harborrl_operator.resources import services
from harborrl_operator.resources.agent_server import deployment

SWITCH_SECONDS = 5.0
"""After the Service was switched, before the old version is told to stop: kube-proxy needs a moment to follow."""


@dataclass(frozen=True)
class Step:
    """What one pass does."""

    serving: str
    """The version that the Service selects from now on."""
    surplus: tuple[Object, ...] = ()
    """Deployments that nobody needs any more."""


def next_step(wanted: str, servers: Mapping[str, Object], serving: str | None) -> Step:
    """Switch only to a version that is available, and remove the old one only after the switch was seen.

    A version that is superseded before it ever served goes at once; so at most one starts beside the one that serves.
    """
    others = {version: server for version, server in servers.items() if version != wanted}
    if serving == wanted:
        return Step(wanted, tuple(others.values()) if _is_available(servers.get(wanted)) else ())
    if serving is None or serving not in servers or _is_available(servers.get(wanted)):
        return Step(wanted)
    return Step(serving, tuple(server for version, server in others.items() if version != serving))


def roll(draft: Draft, job: ResolvedJob) -> None:
    """Applied in every pass, so that what somebody breaks is repaired."""
    seen = draft.observed
    server = deployment(job, seen.claims)
    step = next_step(version_of(server), seen.agent_servers, seen.serving)
    draft.apply(*services.agent_server(job, step.serving), server)
    draft.delete("Deployment", step.surplus)
    if step.serving != seen.serving and seen.agent_servers:
        draft.look_again = SWITCH_SECONDS


def agent_server_obstacle(draft: Draft, job: ResolvedJob, *, is_frozen: bool = False) -> Verdict | None:
    """Sets AgentServerReady. `is_frozen`: the wanted version waits for the next attempt."""
    server = draft.value("agent_server") or AgentServerStatus()
    draft.fields["agent_server"] = server.model_copy(update={"url": job.agent_url})
    if job.spec.agent_server.url:
        said = f"{job.agent_url} is yours; preflight judges it."
        draft.set(ConditionType.AGENT_SERVER_READY, "True", Reason.EXTERNAL_SERVER, said)
        return None
    seen = draft.observed
    wanted = version_of(deployment(job, seen.claims))
    serving = seen.serving if seen.serving in seen.agent_servers else wanted
    assert serving is not None  # noqa: S101 - None is no version of a Deployment
    served = _is_available(seen.agent_servers.get(serving))
    if served and (serving == wanted or is_frozen):
        _ready(draft, job, serving)
        return None
    if served and draft.cluster is not None:
        _beside(draft, job, serving, wanted)
        return None
    # A job that has not begun waits for the version that its preflight shall judge.
    return _absent(draft, wanted if draft.cluster is None else serving, is_frozen=is_frozen)


def note_server_as_it_is(draft: Draft) -> None:
    """Sets AgentServerReady while nobody can tell which version the job would want: by the one that serves."""
    seen, url = draft.observed, draft.job.spec.agent_server.url
    if url:
        draft.set(ConditionType.AGENT_SERVER_READY, "True", Reason.EXTERNAL_SERVER, f"{url} is yours.")
        return
    version = seen.serving or ""
    if _is_available(seen.agent_servers.get(version)):
        said = f"Version {version} is ready. It is neither changed nor repaired before the job can be admitted again."
        draft.set(ConditionType.AGENT_SERVER_READY, "True", Reason.READY, said)
        return
    obstacle = _problem(draft, version)
    if obstacle is None and version in seen.agent_servers:
        obstacle = Verdict(Reason.STARTING, "The agent server starts.")
    if obstacle is None:
        missing = "Its Deployment or its Service is gone and is not made again while the next attempt would be refused."
        obstacle = Verdict(Reason.NOT_STARTED, f"{missing} Correct what Admitted names, or trials fail.")
    draft.set(ConditionType.AGENT_SERVER_READY, "False", obstacle.reason, obstacle.message)


def _ready(draft: Draft, job: ResolvedJob, serving: str) -> None:
    old = [pod for pod in draft.observed.agent_pods if version_of(pod) != serving and is_terminating(pod)]
    if not old:
        draft.set(ConditionType.AGENT_SERVER_READY, "True", Reason.READY, f"{job.agent_url} is ready.")
        return
    said = (
        f"{job.agent_url} is ready as version {serving}. Trials of the version before end in"
        f" {', '.join(map(name_of, old))}, within {job.spec.rollout.agent_trial_timeout_seconds} s; nothing is to do."
    )
    draft.set(ConditionType.AGENT_SERVER_READY, "True", Reason.DRAINING, said)


def _beside(draft: Draft, job: ResolvedJob, serving: str, wanted: str) -> None:
    """The old version serves; what becomes of the new one is no obstacle to the trainer."""
    problem = _problem(draft, wanted)
    if problem is None:
        said = f"{job.agent_url} is ready as version {serving}. Version {wanted} starts beside it and then takes over."
        draft.set(ConditionType.AGENT_SERVER_READY, "True", Reason.ROLLING_OUT, said)
        return
    said = (
        f"Version {serving} goes on serving, for version {wanted} does not become ready: {problem.reason}:"
        f" {problem.message} Correct spec.agentServer or take the change back; running trials are not touched."
    )
    draft.set(ConditionType.AGENT_SERVER_READY, "True", Reason.ROLLOUT_BLOCKED, said)


def _absent(draft: Draft, version: str, *, is_frozen: bool) -> Verdict:
    obstacle = _problem(draft, version) or Verdict(Reason.STARTING, "The agent server starts.")
    if is_frozen and not draft.observed.agent_servers:
        said = (
            "Its Deployment is gone and is not made again while an edit of the job waits for the next attempt."
            " Take the edit back, or suspend and resume the job."
        )
        obstacle = Verdict(Reason.NOT_STARTED, said)
    draft.set(ConditionType.AGENT_SERVER_READY, "False", obstacle.reason, obstacle.message)
    if draft.cluster is None and not draft.preflight.runs:
        draft.set(
            ConditionType.ADMITTED, "Unknown", Reason.AWAITING_PREFLIGHT, "The preflight waits for the agent server."
        )
    return obstacle


def _problem(draft: Draft, version: str) -> Verdict | None:
    """Why a version is not there; None while it merely takes its time."""
    seen = draft.observed
    server = seen.agent_servers.get(version)
    return (
        (server is not None and deployment_problem(server))
        or first_pod_problem(seen.pods_of_version(version), draft.now, seen.warnings)
        or (server is not None and _overdue(server))
        or None
    )


def _overdue(server: Object) -> Verdict | None:
    """The Deployment controller's own deadline, ten minutes: no clock of ours."""
    progressing = condition_of(server, "Progressing")
    if progressing is None or progressing.get("reason") != "ProgressDeadlineExceeded":
        return None
    said = f"Deployment {name_of(server)} has not become ready within its deadline; look at the logs of its pod."
    return Verdict(Reason.STARTING, said)


def _is_available(server: Object | None) -> bool:
    if server is None:
        return False
    status = server.get("status", {})
    current = status.get("observedGeneration", 0) >= server["metadata"].get("generation", 0)
    return bool(current and status.get("readyReplicas", 0) > 0)
