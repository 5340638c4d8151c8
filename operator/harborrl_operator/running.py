"""While a RayCluster of the current attempt exists: follow what its supervisor and its pods say."""

from harborrl_operator.attempts import attempt_failed
from harborrl_operator.conditions import Verdict
from harborrl_operator.constants import ConditionType, Phase, Reason
from harborrl_operator.draft import Draft, Plan
from harborrl_operator.models.status import AgentServerStatus
from harborrl_operator.observed import Object, condition_of, head_pod, is_terminating, labels, name_of, pod_phase
from harborrl_operator.problems import first_pod_problem, kuberay_silence, last_words, ray_cluster_problem
from harborrl_operator.progress import Progress, UnreadableProgressError, has_elapsed, read_progress, stall
from harborrl_operator.starting import LOOK_AGAIN_SECONDS, overdue

STOPPED_MARGIN_SECONDS = 60
"""Beyond the checkpoint's grace: by then the head of a stopped driver is gone, or nobody takes it away."""


def current_progress(draft: Draft) -> Progress | None:
    """The report of the current attempt, None before its supervisor wrote one that can be read."""
    try:
        progress = read_progress(draft.observed.progress, draft.job.uid)
    except UnreadableProgressError:
        return None  # `_unreadable` says so
    return progress if progress is not None and progress.attempt == draft.attempt else None


def note_progress(draft: Draft) -> None:
    """Copy the report into status; what a new attempt has not yet written is left as the last one said."""
    progress = current_progress(draft)
    if progress is None:
        return
    server = draft.value("agent_server") or AgentServerStatus()
    draft.fields.update(
        incarnation=progress.incarnation,
        step=progress.step,
        rollout=progress.rollout,
        eval=progress.eval,
        checkpoint=progress.checkpoint,
    )
    if progress.agent_server is not None:
        draft.fields["agent_server"] = server.model_copy(update=dict(progress.agent_server))
    draft.update_trainer(submission_id=progress.driver.submission_id, driver_state=progress.driver.state)


def verdict_of_driver(draft: Draft) -> Plan | None:
    """A final driver state outranks everything else: it survives the loss of the pod that wrote it."""
    progress = current_progress(draft)
    if progress is None:
        return None
    if progress.driver.state == "SUCCEEDED":
        return draft.finish(Verdict(Reason.COMPLETED, _success(draft, progress)), succeeded=True)
    if progress.incarnation <= draft.trainer.released_incarnation or draft.job.spec.suspend or _is_held_back(draft):
        return None  # we or the queue took its cluster away: that it ended is no failure
    if progress.driver.state == "FAILED":
        said = progress.driver_message or "The driver failed without a message. Look at traces/driver.log of the run."
        return attempt_failed(draft, progress.failure_class, said)
    if progress.driver.state == "STOPPED" and _stays_stopped(draft):
        said = progress.driver_message or "The driver was stopped with its head pod."
        return attempt_failed(draft, "infrastructure", said)
    return None


def _stays_stopped(draft: Draft) -> bool:
    """A driver is stopped when its head is about to go; one that was stopped by hand would leave an idle head.

    A head that is not ready may be the next incarnation's, which has not reported yet.
    """
    head = head_pod(_pods(draft))
    patience = draft.job.spec.checkpoint.grace_seconds + STOPPED_MARGIN_SECONDS
    return head is None or (_is_ready(head) and has_elapsed(draft.value("starting_since"), patience, draft.now))


def _success(draft: Draft, progress: Progress) -> str:
    rollout, checkpoint = progress.rollout, progress.checkpoint
    said = f"{rollout.trained} of {rollout.total} rollouts trained" if rollout else "The driver finished"
    if rollout and rollout.reward_mean is not None:
        said += f", mean reward {rollout.reward_mean:.3f}"
    if checkpoint and checkpoint.path:
        said += f"; checkpoint {checkpoint.path} on the checkpoints volume"
    return f"{said}; dumps below {draft.job.names.run_path} on the traces volume."


def follow(draft: Draft) -> Plan:
    """Queue, head, pods, driver: the first one that is not there is what the job waits for."""
    pods = _pods(draft)
    draft.open_attempt()
    draft.update_trainer(ray_cluster=draft.job.names.ray_cluster(draft.attempt))
    if _is_held_back(draft):
        return _queued(draft)
    head = head_pod(pods)
    if head is None:
        lost = _lost(draft, pods)
        if lost is not None:
            return lost
    else:
        draft.update_trainer(head_pod=name_of(head))
        draft.change_attempt(node=head["spec"].get("nodeName"))
    obstacle = _trainer_obstacle(draft, pods)
    if _driver_runs(draft):
        return _running(draft)
    unreadable = _unreadable(draft)
    if unreadable is not None:
        return unreadable
    draft.start_clock()
    waiting = obstacle or Verdict(Reason.STARTING, "The supervisor starts the driver.")
    late = overdue(draft, waiting)
    if late is not None:
        return draft.finish(late, succeeded=False)
    draft.set(ConditionType.PROGRESSING, "False", Reason.NOT_RUNNING, "The driver has not started.")
    return draft.end(Phase.STARTING_TRAINER, waiting, requeue_after=LOOK_AGAIN_SECONDS)


def _pods(draft: Draft) -> tuple[Object, ...]:
    return draft.observed.pods_of_attempt(draft.attempt)


def _is_held_back(draft: Draft) -> bool:
    """By Kueue, which owns the cluster's `suspend`."""
    return draft.cluster is not None and bool(draft.cluster["spec"].get("suspend"))


def _queued(draft: Draft) -> Plan:
    """Kueue holds the cluster back or took it: no clock of ours runs, and a later head is a new incarnation."""
    draft.fields.update(starting_since=None)
    draft.update_trainer(head_pod=None, released_incarnation=draft.value("incarnation") or 0)
    verdict = Verdict(Reason.QUEUED, f"Queue {draft.job.spec.queue_name} has not admitted the trainer.")
    draft.set(ConditionType.TRAINER_READY, "False", verdict.reason, verdict.message)
    draft.set(ConditionType.PROGRESSING, "False", Reason.NOT_RUNNING, "Queued.")
    draft.set(ConditionType.STALLED, "False", Reason.NOT_RUNNING)
    return draft.end(Phase.STARTING_TRAINER, verdict, requeue_after=LOOK_AGAIN_SECONDS)


def _lost(draft: Draft, pods: tuple[Object, ...]) -> Plan | None:
    """A head that was there and is not: KubeRay does not replace it, and neither does anything else."""
    heads = [pod for pod in pods if labels(pod).get("ray.io/node-type") == "head"]
    if any(is_terminating(pod) for pod in heads):
        return None  # its supervisor may still be saving; the pod's end decides
    ended = next((pod for pod in heads if pod_phase(pod) in ("Failed", "Succeeded")), None)
    if ended is not None:
        words = last_words(ended) or "no message"
        return attempt_failed(draft, "infrastructure", f"Head pod {name_of(ended)} ended: {words}")
    if draft.trainer.head_pod:
        said = f"Head pod {draft.trainer.head_pod} is gone and the driver had not finished."
        return attempt_failed(draft, "infrastructure", said)
    return None


def _trainer_obstacle(draft: Draft, pods: tuple[Object, ...]) -> Verdict | None:
    """Sets TrainerReady."""
    cluster = draft.cluster
    ready = sum(1 for pod in pods if _is_ready(pod))
    wanted = draft.job.spec.trainer.nodes
    obstacle: Verdict | None = None
    if ready < wanted:
        obstacle = (
            (cluster is not None and ray_cluster_problem(cluster))
            or first_pod_problem(pods, draft.now, draft.observed.warnings)
            or (cluster is not None and not pods and kuberay_silence(cluster, draft.now))
            or Verdict(Reason.STARTING, f"{ready} of {wanted} trainer pods are ready.")
        )
        draft.set(ConditionType.TRAINER_READY, "False", obstacle.reason, obstacle.message)
    else:
        draft.set(ConditionType.TRAINER_READY, "True", Reason.READY, f"All {wanted} trainer pods are ready.")
    return obstacle


def _is_ready(pod: Object) -> bool:
    ready = condition_of(pod, "Ready")
    return not is_terminating(pod) and ready is not None and ready["status"] == "True"


def _driver_runs(draft: Draft) -> bool:
    progress = current_progress(draft)
    if progress is None or progress.incarnation <= draft.trainer.released_incarnation:
        return False
    return progress.driver.state == "RUNNING"


def _unreadable(draft: Draft) -> Plan | None:
    """No verdict follows from a report that cannot be read: it is said, and nothing that may be well is stopped."""
    try:
        read_progress(draft.observed.progress, draft.job.uid)
    except UnreadableProgressError as error:
        said = f"ConfigMap {draft.job.names.progress} cannot be read: {error}. The supervisor's next write replaces it."
        verdict = Verdict(Reason.PROGRESS_UNREADABLE, said)
        draft.set(ConditionType.PROGRESSING, "Unknown", verdict.reason, said)
        phase = Phase.RUNNING if draft.job.status.phase is Phase.RUNNING else Phase.STARTING_TRAINER
        return draft.end(phase, verdict, requeue_after=LOOK_AGAIN_SECONDS)
    return None


def _running(draft: Draft) -> Plan:
    progress = current_progress(draft)
    assert progress is not None  # noqa: S101 - _driver_runs has just seen it
    draft.fields.update(starting_since=None)
    rollout = progress.rollout
    if rollout is not None and rollout.collected > 0:
        said = f"{rollout.collected} rollouts collected, {rollout.trained} of {rollout.total} trained."
        if rollout.reward_mean is not None:
            said += f" Mean reward {rollout.reward_mean:.3f}."
        verdict = Verdict(Reason.ROLLOUTS_ADVANCING, said)
    else:
        verdict = Verdict(Reason.WAITING_FOR_FIRST_ROLLOUT, "The driver runs; no rollout is complete yet.")
    trainer = draft.conditions.get(ConditionType.TRAINER_READY)
    running_since = trainer.last_transition_time if trainer is not None else draft.text_now
    stalled = stall(draft.job.spec, progress, running_since, draft.now)
    if stalled is None:
        draft.set(ConditionType.STALLED, "False", Reason.MOVING)
        draft.set(ConditionType.PROGRESSING, "True", verdict.reason, verdict.message)
        return draft.end(Phase.RUNNING, verdict, requeue_after=LOOK_AGAIN_SECONDS)
    if draft.job.spec.progress.on_stall == "Restart":
        return attempt_failed(draft, "infrastructure", stalled.message)
    draft.set(ConditionType.STALLED, "True", stalled.reason, stalled.message)
    draft.set(ConditionType.PROGRESSING, "False", stalled.reason, stalled.message)
    return draft.end(Phase.RUNNING, stalled, requeue_after=LOOK_AGAIN_SECONDS)
