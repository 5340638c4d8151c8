"""While a RayCluster of the current attempt exists: follow what its supervisor and its pods say."""

from harborrl_operator.attempts import attempt_failed, head_replaced, what_befell_head
from harborrl_operator.conditions import Verdict
from harborrl_operator.constants import Cause, ConditionType, Phase, Reason
from harborrl_operator.deadlines import late_start
from harborrl_operator.draft import Draft, Plan
from harborrl_operator.fates import fate_of, is_unconfirmed
from harborrl_operator.gang import is_ready, missing_pods
from harborrl_operator.heads import note_head, successor
from harborrl_operator.incarnations import current_pods
from harborrl_operator.lost_labels import lost_labels
from harborrl_operator.missing_rights import missing_rights
from harborrl_operator.observed import Object, head_pod, is_head, is_terminating
from harborrl_operator.pace import LOOK_AGAIN_SECONDS
from harborrl_operator.preempted import note_admission
from harborrl_operator.problems import first_pod_problem, kuberay_silence, ray_cluster_problem
from harborrl_operator.progress import Progress, Unreadable, has_elapsed, stall, stall_seconds
from harborrl_operator.queued import queued
from harborrl_operator.remembered_fate import cause_by_fate, note_fate
from harborrl_operator.reporting import is_live, unreadable
from harborrl_operator.short_gang import lost_with_a_pod, note_short_gang
from harborrl_operator.stalls import note_trials, shows_life
from harborrl_operator.suspend import go_on, was_asked_to_stop
from harborrl_operator.workloads import is_held_back, queue_without_effect

STOPPED_MARGIN_SECONDS = 60
"""Beyond the checkpoint's grace: by then the head of a stopped driver is gone, or nobody takes it away."""

UNSEEN_SECONDS = 30
"""A report this old is no word of a head that came up between two reads of one pass."""


def verdict_of_driver(draft: Draft) -> Plan | None:
    """A final driver state outranks everything else: it survives the loss of the pod that wrote it."""
    progress = draft.progress
    if progress is None:
        return None
    if progress.driver.state == "SUCCEEDED":
        return draft.finish(Verdict(Reason.COMPLETED, _success(draft, progress)), succeeded=True)
    if progress.driver.state == "STOPPED" and not draft.job.spec.suspend and was_asked_to_stop(draft):
        return go_on(draft)
    if not is_live(draft, progress) or is_held_back(draft.cluster):
        return None  # we or the queue took its cluster away: that it ended is no failure
    if progress.driver.state == "FAILED":
        note_fate(draft)
        said = _what_failed(draft, progress)
        return attempt_failed(draft, progress.failure_class, said, _cause(draft, progress))
    return _stopped(draft, progress) if progress.driver.state == "STOPPED" else None


def _what_failed(draft: Draft, progress: Progress) -> str:
    """The driver's last sentence; where the infrastructure failed it, what befell a pod comes first."""
    said = progress.driver_message or "The driver failed without a message. Look at traces/driver.log of the run."
    fate = draft.trainer.fate
    if fate is None or progress.failure_class != "infrastructure":
        return said
    return f"{fate.message} The driver's last words: {said}"


def _stopped(draft: Draft, progress: Progress) -> Plan | None:
    if draft.job.spec.suspend:
        return None  # as it was asked to
    if not _stays_stopped(draft):
        return None
    said = progress.driver_message or "The driver was stopped with its head pod."
    note_fate(draft)
    cause = cause_by_fate(draft) or Cause.DRIVER_STOPPED
    return attempt_failed(draft, "infrastructure", said, cause)


def _cause(draft: Draft, progress: Progress) -> Cause:
    """What the driver knows of its end comes first, then what befell a pod, which is why an actor died."""
    told = progress.driver.cause
    known = next((cause for cause in (Cause.OUT_OF_MEMORY, Cause.RESTART_AT_ZERO) if cause == told), None)
    by_fate = cause_by_fate(draft) if progress.failure_class == "infrastructure" else None
    # Killed, by whom the driver does not know: a container that the kernel killed for memory does.
    return known or by_fate or (Cause.DRIVER_KILLED if told == Cause.DRIVER_KILLED else Cause.DRIVER_FAILED)


def _stays_stopped(draft: Draft) -> bool:
    """A driver is stopped when its head is about to go; one that was stopped by hand would leave an idle head.

    A head that is not ready may be the next incarnation's, which has not reported yet.
    """
    head = head_pod(current_pods(draft))
    patience = draft.job.spec.checkpoint.grace_seconds + STOPPED_MARGIN_SECONDS
    return head is None or (is_ready(head) and has_elapsed(draft.value("starting_since"), patience, draft.now))


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
    pods = current_pods(draft)
    draft.open_attempt()
    draft.update_trainer(ray_cluster=draft.job.names.ray_cluster(draft.attempt))
    if is_held_back(draft.cluster):
        return queued(draft)
    note_fate(draft)
    lost = _follow_head(draft, pods)
    if lost is not None:
        return lost
    obstacle = _trainer_obstacle(draft, pods)
    progress = draft.progress
    if progress is not None and is_live(draft, progress) and progress.driver.state == "RUNNING":
        return _running(draft, progress, note_short_gang(draft, pods))
    unreadable = _unreadable(draft)
    if unreadable is not None:
        return unreadable
    draft.start_clock()
    waiting = _without_rights(draft, obstacle or Verdict(Reason.STARTING, "The supervisor starts the driver."))
    late = late_start(draft, waiting)
    if late is not None:
        return late
    said = _also("No driver that runs has been reported.", missing_rights(draft))
    draft.set(ConditionType.PROGRESSING, "False", Reason.NOT_RUNNING, said)
    return draft.end(Phase.STARTING_TRAINER, waiting, requeue_after=LOOK_AGAIN_SECONDS)


def _without_rights(draft: Draft, waiting: Verdict) -> Verdict:
    """What is missing comes first: a driver may run that nobody hears of."""
    return Verdict(waiting.reason, _also(missing_rights(draft), waiting.message))


def _also(*sentences: str) -> str:
    return " ".join(sentence for sentence in sentences if sentence)


def _follow_head(draft: Draft, pods: tuple[Object, ...]) -> Plan | None:
    head = head_pod(pods)
    if head is None:
        return _lost(draft, pods)
    if successor(draft) is not None:
        return head_replaced(draft, head)
    note_head(draft, head)
    note_admission(draft)
    draft.change_attempt(node=head["spec"].get("nodeName"))
    return None


def _lost(draft: Draft, pods: tuple[Object, ...]) -> Plan | None:
    """A head that was there and is not: KubeRay does not replace it, and neither does anything else."""
    heads = _heads(pods)
    if any(is_terminating(pod) and not is_unconfirmed(pod, draft.now) for pod in heads):
        return None  # its supervisor may still be saving; the pod's end decides
    ended = next((fate for pod in heads if (fate := fate_of(pod, draft.now)) is not None), None)
    if ended is not None:
        return attempt_failed(draft, "infrastructure", f"Head: {ended.message}", Cause(ended.cause))
    if draft.trainer.head_pod or _has_reported(draft):
        return attempt_failed(draft, "infrastructure", *what_befell_head(draft))
    return None


def _has_reported(draft: Draft) -> bool:
    """Whether a head that no pass saw left a report, which cannot be of one that came after the pods were read."""
    progress = draft.progress
    if progress is None or not is_live(draft, progress) or _heads(draft.observed.pods_of_attempt(draft.attempt)):
        return False
    return progress.observed_at is None or has_elapsed(progress.observed_at, UNSEEN_SECONDS, draft.now)


def _heads(pods: tuple[Object, ...]) -> list[Object]:
    return [pod for pod in pods if is_head(pod)]


def _trainer_obstacle(draft: Draft, pods: tuple[Object, ...]) -> Verdict | None:
    """Sets TrainerReady."""
    cluster = draft.cluster
    ready = sum(1 for pod in pods if is_ready(pod))
    wanted = draft.job.spec.trainer.nodes
    obstacle: Verdict | None = None
    astray = _also(_without_queue(draft), lost_labels(pods, draft.job))
    is_empty = not draft.observed.pods_of_attempt(draft.attempt)
    if ready < wanted:
        obstacle = (
            (cluster is not None and ray_cluster_problem(cluster))
            or first_pod_problem(pods, draft.now, draft.observed.warnings)
            or (cluster is not None and is_empty and kuberay_silence(cluster, draft.now))
            or Verdict(
                Reason.STARTING,
                f"{ready} of {wanted} trainer pods are ready; missing: {missing_pods(pods, wanted)}.",
            )
        )
        draft.set(ConditionType.TRAINER_READY, "False", obstacle.reason, _also(obstacle.message, astray))
    else:
        said = _also(f"All {wanted} trainer pods are ready.", astray)
        draft.set(ConditionType.TRAINER_READY, "True", Reason.READY, said)
    return obstacle


def _without_queue(draft: Draft) -> str:
    cluster, observed = draft.cluster, draft.observed
    workload = observed.workload_of(cluster) if cluster is not None else None
    return queue_without_effect(cluster, observed.kueue, workload, draft.now)


def _unreadable(draft: Draft) -> Plan | None:
    """A report that does not even say whose driver is in which state: waited for as long as for a rollout."""
    verdict = unreadable(draft)
    if verdict is None or not isinstance(draft.report, Unreadable):
        return None
    draft.set(ConditionType.PROGRESSING, "Unknown", verdict.reason, verdict.message)
    if draft.job.status.phase is not Phase.RUNNING:
        draft.start_clock()
        late = late_start(draft, verdict)
        return late or draft.end(Phase.STARTING_TRAINER, verdict, requeue_after=LOOK_AGAIN_SECONDS)
    since, patience = draft.trainer.unreadable_since, stall_seconds(draft.job.spec, draft.value("rollout"))
    if has_elapsed(since, patience, draft.now):
        said = f"Since {since} nothing can be read of the driver (limit {patience:.0f} s). {verdict.message}"
        return attempt_failed(draft, "infrastructure", said, Cause.REPORT_LOST)
    draft.update_trainer(unreadable_since=since or draft.text_now)
    return draft.end(Phase.RUNNING, verdict, requeue_after=LOOK_AGAIN_SECONDS)


def _running(draft: Draft, progress: Progress, short: str) -> Plan:
    """`short`: what the gang lacks, empty when it is whole."""
    draft.fields.update(starting_since=None)
    lost = lost_with_a_pod(draft, short)
    if lost is not None:
        return lost
    rollout = progress.rollout
    if rollout is not None and rollout.collected > 0:
        said = f"{rollout.collected} rollouts collected, {rollout.trained} of {rollout.total} trained."
        if rollout.reward_mean is not None:
            said += f" Mean reward {rollout.reward_mean:.3f}."
        verdict = Verdict(Reason.ROLLOUTS_ADVANCING, f"{said} {short}".strip())
    else:
        said = "The driver runs; no rollout is complete yet."
        verdict = Verdict(Reason.WAITING_FOR_FIRST_ROLLOUT, f"{said} {short}".strip())
    note_trials(draft, progress)
    partly = unreadable(draft)
    stalled: Verdict | None = None
    if not progress.faults.keys() & {"rollout", "agentServer"}:  # else nobody can tell
        since = draft.trainer.running_since or draft.text_now
        run = draft.job.names.run_path
        stalled = stall(draft.job.spec, progress, since, draft.now, missing=short, run_path=run)
    if stalled is None:
        draft.set(ConditionType.STALLED, "False", Reason.MOVING)
        if partly is not None:
            draft.set(ConditionType.PROGRESSING, "Unknown", partly.reason, partly.message)
            return draft.end(Phase.RUNNING, partly, requeue_after=LOOK_AGAIN_SECONDS)
        draft.set(ConditionType.PROGRESSING, "True", verdict.reason, verdict.message)
        return draft.end(Phase.RUNNING, verdict, requeue_after=LOOK_AGAIN_SECONDS)
    if draft.job.spec.progress.on_stall == "Restart" and not shows_life(draft, progress):
        return attempt_failed(draft, "infrastructure", stalled.message, Cause.STALLED)
    draft.set(ConditionType.STALLED, "True", stalled.reason, stalled.message)
    draft.set(ConditionType.PROGRESSING, "False", stalled.reason, stalled.message)
    return draft.end(Phase.RUNNING, stalled, requeue_after=LOOK_AGAIN_SECONDS)
