"""After the end: what is left is released, now or later; the verdict never changes again."""

from datetime import datetime, timedelta

from harborrl_operator.clock import from_text, to_text
from harborrl_operator.constants import ConditionType, Reason
from harborrl_operator.draft import Draft, Plan
from harborrl_operator.models import JobStatus
from harborrl_operator.observed import is_terminating, name_of
from harborrl_operator.resolve import gpus_per_node


def after_the_end(draft: Draft) -> Plan:
    """Cluster and resource have times of their own: `retries.keepClusterSeconds` and `ttlSecondsAfterFinished`."""
    status, spec = draft.job.status, draft.job.spec
    if status.finished_at is None:
        raise ValueError("the job has not finished")
    finished = from_text(status.finished_at)
    waits = []
    kept = _kept_until(draft, finished)
    if kept is None:
        draft.release()
        status = _released(draft)
    else:
        draft.release(keep=name_of(draft.cluster) if draft.cluster else None)
        status = _kept(draft, kept)
        waits.append((kept - draft.now).total_seconds())
    if spec.ttl_seconds_after_finished is not None:
        waits.append(spec.ttl_seconds_after_finished - (draft.now - finished).total_seconds())
        if waits[-1] <= 0:
            draft.delete_job()
    return draft.close(status, requeue_after=max(min(waits), 1.0) if waits else None)


def _kept_until(draft: Draft, finished: datetime) -> datetime | None:
    """None when nothing is kept: the spec decides, so lowering it there frees the cluster early."""
    if not draft.trainer.kept or draft.cluster is None or is_terminating(draft.cluster):
        return None
    until = finished + timedelta(seconds=draft.job.spec.retries.keep_cluster_seconds)
    return until if draft.now < until else None


def _kept(draft: Draft, until: datetime) -> JobStatus:
    pods = [pod for pod in draft.observed.pods_of_attempt(draft.attempt) if not is_terminating(pod)]
    cluster = draft.job.names.ray_cluster(draft.attempt)
    gpus = len(pods) * gpus_per_node(draft.job.spec)
    said = (
        f"RayCluster {cluster} is kept until {to_text(until)} (retries.keepClusterSeconds) to be looked into:"
        f" {len(pods)} pods, {gpus} GPUs held. `kubectl delete raycluster {cluster}` frees them now."
    )
    draft.set(ConditionType.TRAINER_READY, "False", Reason.KEPT_FOR_DEBUGGING, said)
    return draft.job.status.model_copy(update={"conditions": draft.conditions.listed()})


def _released(draft: Draft) -> JobStatus:
    ready = draft.conditions.get(ConditionType.TRAINER_READY)
    if ready is None or ready.reason not in (Reason.KEPT_FOR_DEBUGGING, Reason.APPLY_FAILED):
        return draft.job.status
    draft.set(ConditionType.TRAINER_READY, "False", Reason.RELEASED, "Released: the job has finished.")
    return draft.job.status.model_copy(update={"conditions": draft.conditions.listed()})
