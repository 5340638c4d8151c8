"""While Kueue holds the RayCluster back: before it was ever admitted, or after its quota was taken away."""

from datetime import datetime, timedelta

from harborrl_operator.conditions import Verdict
from harborrl_operator.constants import ConditionType, Phase, Reason
from harborrl_operator.draft import Draft, Plan
from harborrl_operator.heads import NO_HEAD
from harborrl_operator.losses import account, kept_rollouts
from harborrl_operator.observed import Object, labels
from harborrl_operator.pace import LOOK_AGAIN_SECONDS, WHILE_ENDING_SECONDS
from harborrl_operator.resources.ray_cluster import queue_labels
from harborrl_operator.work_end import work_end
from harborrl_operator.workloads import admitted_too_long, eviction, queue_changes, queue_of, words


def queued(draft: Draft) -> Plan:
    """No clock of ours runs, and a later head is a new incarnation of the same attempt."""
    cluster, pods = draft.cluster, draft.observed.pods_of_attempt(draft.attempt)
    assert cluster is not None  # noqa: S101 - is_held_back has just seen it
    draft.fields.update(starting_since=None)
    draft.update_trainer(**NO_HEAD, released_incarnation=draft.value("incarnation") or 0)
    verdict = _verdict(draft, cluster, len(pods))
    draft.set(ConditionType.TRAINER_READY, "False", verdict.reason, verdict.message)
    draft.set(ConditionType.STALLED, "False", Reason.NOT_RUNNING)
    if pods:
        draft.set(ConditionType.PROGRESSING, "False", Reason.NOT_RUNNING, "The trainer saves and ends.")
    else:
        _note_loss(draft)
        if _wants_another_queue(draft, cluster):
            # Nothing of it runs, and Kueue lets no queue be changed while a quota is held: made anew in the next pass.
            draft.delete("RayCluster", [cluster])
    return draft.end(Phase.QUEUED, verdict, requeue_after=WHILE_ENDING_SECONDS if pods else LOOK_AGAIN_SECONDS)


def _verdict(draft: Draft, cluster: Object, pods: int) -> Verdict:
    queue, workload = queue_of(cluster), draft.observed.workload_of(cluster)
    if not queue:
        return Verdict(
            Reason.QUEUED,
            f"RayCluster {cluster['metadata']['name']} is suspended and in no queue. Where Kueue manages every job, set"
            " spec.queueName; else somebody suspended it by hand.",
        )
    taken = eviction(workload)
    if pods:
        why = f"{taken.reason}: {taken.message}" if taken else "Kueue suspended the trainer"
        return Verdict(Reason.EVICTED, f"Queue {queue}: {why}. {pods} trainer pods save and end.")
    since = admitted_too_long(workload, draft.now)
    if since:
        return Verdict(
            Reason.ADMITTED_BUT_SUSPENDED,
            f"Queue {queue}: Kueue has counted the quota as ours since {since}, but left the RayCluster suspended. Look"
            f" at Kueue's log for {cluster['metadata']['name']}; deleting its Workload makes Kueue decide anew.",
        )
    if taken:
        return Verdict(
            Reason.EVICTED,
            f"Queue {queue}: {taken.reason}: {taken.message}. The run goes on from its checkpoint once it is admitted"
            f" again. {words(workload)}",
        )
    return Verdict(Reason.QUEUED, f"Queue {queue}: {words(workload)}")


def _note_loss(draft: Draft) -> None:
    """Judged once for each incarnation, when its last pod has ended: until then it may still be saving."""
    lost = account(draft, work_end(draft, at_latest=_killed_by(draft)).at).rollouts
    if lost:
        said = (
            f"The quota was taken before the trainer could save: {lost} trained rollouts are lost, it goes on at"
            f" rollout {kept_rollouts(draft)}. Raise checkpoint.graceSeconds"
            f" ({draft.job.spec.checkpoint.grace_seconds}) or lower trainer.config.saveInterval."
        )
        draft.set(ConditionType.PROGRESSING, "False", Reason.CHECKPOINT_MISSED, said)
        return
    before = draft.conditions.get(ConditionType.PROGRESSING)
    if before is None or before.reason != Reason.CHECKPOINT_MISSED:
        said = f"Queued; goes on at rollout {kept_rollouts(draft)}."
        draft.set(ConditionType.PROGRESSING, "False", Reason.NOT_RUNNING, said)


def _killed_by(draft: Draft) -> datetime | None:
    """When the kubelet has ended what did not end by itself after Kueue took the cluster."""
    taken = max(queue_changes(draft.cluster, "True"), default=None)
    return taken and taken + timedelta(seconds=draft.job.spec.checkpoint.grace_seconds)


def _wants_another_queue(draft: Draft, cluster: Object) -> bool:
    wanted, has = queue_labels(draft.job.spec), labels(cluster)
    return any(has.get(name) != value for name, value in wanted.items())
