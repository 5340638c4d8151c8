"""From an admitted spec to a RayCluster: each step names its obstacle, or None when it is passed."""

from harborrl_operator.capacity import tightness
from harborrl_operator.conditions import Verdict
from harborrl_operator.constants import ANNOTATION_CONFIG, ANNOTATION_SHARED, ConditionType, Phase, Reason
from harborrl_operator.draft import Draft, Plan
from harborrl_operator.fates import is_unconfirmed
from harborrl_operator.gang import missing_pods
from harborrl_operator.heads import NO_HEAD
from harborrl_operator.incarnations import current_pods
from harborrl_operator.lost_labels import lost_labels
from harborrl_operator.observed import Object, annotations, name_of
from harborrl_operator.pace import LOOK_AGAIN_SECONDS, WHILE_ENDING_SECONDS
from harborrl_operator.preflight_verdict import PreflightOutcome, is_asking, read_outcome
from harborrl_operator.problems import pod_problem
from harborrl_operator.progress import has_elapsed
from harborrl_operator.refusals import refuse, still_refused
from harborrl_operator.resolve import ResolvedJob
from harborrl_operator.resources import config_maps, preflight
from harborrl_operator.resources.ray_cluster import ray_cluster
from harborrl_operator.server_rollout import agent_server_obstacle
from harborrl_operator.sharing import is_claimed

CLAIM_SECONDS = 3.0
"""Long enough for another pass that is under way to write what it decided."""


def preflight_obstacle(draft: Draft, job: ResolvedJob) -> Verdict | None:
    """Sets Admitted: runs the preflight pod of this configuration and attempt, again with back-off while it refuses."""
    pod, key = draft.observed.preflight_pod, preflight.key(job, draft.attempt)
    if pod is None:
        draft.apply(preflight.pod(job, draft.attempt, draft.observed.claims))
        return _await(draft, Verdict(Reason.AWAITING_PREFLIGHT, "The preflight starts."))
    if annotations(pod).get(ANNOTATION_CONFIG) != key:
        draft.delete("Pod", [pod])
        draft.look_again = 2.0
        return _await(draft, Verdict(Reason.AWAITING_PREFLIGHT, "The preflight runs again, for this attempt."))
    outcome = read_outcome(pod)
    if outcome is None:
        problem = pod_problem(pod, draft.now, draft.observed.warnings.get(name_of(pod), ""))
        if problem:
            draft.set(ConditionType.ADMITTED, "False", problem.reason, problem.message)
            return problem
        said = f"The preflight's own checks passed; it asks Miles' parser in {job.trainer_image}, without a GPU."
        return _await(draft, Verdict(Reason.AWAITING_PREFLIGHT, said if is_asking(pod) else "The preflight runs."))
    if outcome.refusal is not None:
        return refuse(draft, pod, outcome, outcome.refusal)
    return _last_look(draft, job, outcome)


def _last_look(draft: Draft, job: ResolvedJob, outcome: PreflightOutcome) -> Verdict | None:
    """What only the preflight's numbers and the surroundings together can tell."""
    around = draft.observed.surroundings
    if job.spec.agent_server.url and not is_claimed(draft.job):
        # Said before it is taken: a job beside this one must see the claim before either looks a last time.
        draft.look_again = CLAIM_SECONDS
        verdict = Verdict(Reason.AWAITING_PREFLIGHT, "The preflight passed; looks once more for jobs beside this one.")
        draft.set(ConditionType.ADMITTED, "Unknown", verdict.reason, verdict.message)
        return verdict
    note_capacity(draft, tightness(job, outcome.facts, outcome.tight, around))
    said = " ".join(("All checks and the preflight passed.", *outcome.notes))
    draft.set(ConditionType.ADMITTED, "True", Reason.ADMITTED, said)
    return None


def note_capacity(draft: Draft, tight: Verdict | None) -> None:
    """Sets CapacityTight."""
    if tight is None:
        draft.set(ConditionType.CAPACITY_TIGHT, "False", Reason.CAPACITY_SUFFICIENT)
    else:
        draft.set(ConditionType.CAPACITY_TIGHT, "True", tight.reason, tight.message)


def _await(draft: Draft, verdict: Verdict) -> Verdict:
    """A refusal stays on display while its repetition runs."""
    refused = still_refused(draft)
    if refused is not None:
        return refused
    draft.set(ConditionType.ADMITTED, "Unknown", verdict.reason, verdict.message)
    return verdict


def server_obstacle(draft: Draft, job: ResolvedJob) -> Verdict | None:
    """The agent server; one that merely starts for another preflight leaves the refusal on display."""
    obstacle = agent_server_obstacle(draft, job)
    if obstacle is None or obstacle.reason is not Reason.STARTING:
        return obstacle
    return still_refused(draft) or obstacle


def predecessor_obstacle(draft: Draft, _: ResolvedJob) -> Verdict | None:
    """Our names must be nobody's: an apply would adopt a deleted job's last report as ours, and KubeRay its pods."""
    left = draft.observed.predecessors
    if not left:
        return None
    for kind, thing in left:
        draft.delete(kind, [thing])
    names = ", ".join(sorted({f"{kind} {name_of(thing)}" for kind, thing in left}))
    obstacle = Verdict(Reason.WAITING_FOR_OLD_PODS, f"Waits for what is left of a deleted job of this name: {names}.")
    draft.set(ConditionType.AGENT_SERVER_READY, "False", obstacle.reason, obstacle.message)
    draft.look_again = WHILE_ENDING_SECONDS
    return obstacle


def old_pods_obstacle(draft: Draft, _: ResolvedJob) -> Verdict | None:
    """Two heads at once would write to the same run; without a RayCluster every trainer pod is an old one."""
    old = draft.observed.trainer_pods
    if not old:
        return None
    names = ", ".join(name_of(pod) for pod in old)
    cut_off = [f"{name_of(pod)} on {pod['spec'].get('nodeName')}" for pod in old if is_unconfirmed(pod, draft.now)]
    said = f"Waits for earlier trainer pods to end: {names}."
    if cut_off:
        said += (
            f" The nodes of these do not confirm their end: {', '.join(cut_off)}. Delete the Node once the machine is"
            " off, or the pod with --force; two drivers must not run at once."
        )
    astray = lost_labels(old, draft.job)
    obstacle = Verdict(Reason.WAITING_FOR_OLD_PODS, f"{said} {astray}".strip())
    draft.set(ConditionType.TRAINER_READY, "False", obstacle.reason, obstacle.message)
    draft.delete("Pod", old)  # whoever deleted a RayCluster may have left its pods: nothing else would end them
    draft.look_again = WHILE_ENDING_SECONDS
    return obstacle


def create_cluster(draft: Draft, job: ResolvedJob) -> Plan:
    """The only place that applies a RayCluster, reached only while there is none.

    `trainer.rayCluster` is set once it is seen: one that the API server refuses must not freeze the spec to correct.
    """
    draft.apply(config_maps.progress(job.job), ray_cluster(job, draft.attempt, draft.observed.claims))
    draft.update_trainer(ray_cluster=None, **NO_HEAD, fate=None)
    verdict = Verdict(Reason.STARTING, f"The trainer of attempt {draft.attempt} starts.")
    draft.set(ConditionType.TRAINER_READY, "False", verdict.reason, verdict.message)
    return draft.end(Phase.STARTING_TRAINER, verdict, requeue_after=LOOK_AGAIN_SECONDS)


def no_cluster(draft: Draft) -> Verdict:
    """Why there is none although nothing is in its way: what the API server said to the pass before."""
    status = draft.job.status
    if status.reason in (Reason.APPLY_FAILED, Reason.UNKNOWN_TO_KUBERAY):
        return Verdict(Reason(status.reason), status.message)
    return Verdict(Reason.STARTING, "What the trainer waits for came too late.")


def made_from(cluster: Object | None) -> str:
    """Hash of the configuration that a RayCluster was made from."""
    return annotations(cluster).get(ANNOTATION_CONFIG, "") if cluster else ""


def fits_the_trainer(cluster: Object | None, job: ResolvedJob) -> bool:
    """Whether an agent server of the job as it is now can serve the trainer of this RayCluster.

    One that an earlier operator made says only whether anything at all has changed.
    """
    shared = annotations(cluster).get(ANNOTATION_SHARED) if cluster else None
    return shared == job.shared_hash if shared else made_from(cluster) == job.attempt_hash


def overdue(draft: Draft, obstacle: Verdict) -> Verdict | None:
    """The end of the start deadline, naming what was in the way."""
    limit = draft.job.spec.trainer.start_deadline_seconds
    if not has_elapsed(draft.value("starting_since"), limit, draft.now):
        return None
    missing = missing_pods(current_pods(draft), draft.job.spec.trainer.nodes)
    gang = f" Missing pods: {missing}." if draft.cluster is not None and missing else ""
    return Verdict(
        Reason.START_DEADLINE_EXCEEDED,
        f"The trainer did not run within trainer.startDeadlineSeconds = {limit}.{gang}"
        f" Last obstacle: {obstacle.reason}: {obstacle.message}",
    )
