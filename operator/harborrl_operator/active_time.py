"""The time that counts towards `activeDeadlineSeconds`: from the first attempt on, without what it waits for.

Kept as seconds up to a moment plus that moment, so that no pass has to happen for time to pass: an operator that was
away has missed nothing.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta

from harborrl_operator.clock import from_text, seconds_since, to_text
from harborrl_operator.constants import Phase
from harborrl_operator.draft import Plan
from harborrl_operator.models import HarborRLJob, JobStatus
from harborrl_operator.observed import Object, Observed
from harborrl_operator.workloads import is_held_back, queue_changes


def active_seconds(status: JobStatus, now: datetime) -> float:
    running = max(seconds_since(status.active_since, now), 0) if status.active_since else 0
    return status.active_seconds + running


def time_spent(job: HarborRLJob, observed: Observed, now: datetime) -> float:
    """Active seconds as this pass finds them: a queue that took the cluster while nobody looked stopped the clock."""
    if not is_held_back(_cluster(job, observed)):
        return active_seconds(job.status, now)
    return active_seconds(job.status, _stopped(job, observed, now))


def without_unseen_queueing(job: HarborRLJob, observed: Observed, now: datetime) -> HarborRLJob:
    """The job with its clock set right after a queue took the cluster and gave it back while nobody looked.

    Nobody keeps when it was taken: KubeRay has the last change alone, and Kueue sets its Evicted condition back. What
    is sure is counted, up to the last thing that was seen before the cluster started anew.
    """
    begun = job.status.active_since
    if begun is None:
        return job
    starts = [moment for moment in queue_changes(_cluster(job, observed), "False") if from_text(begun) < moment <= now]
    if not starts or is_held_back(_cluster(job, observed)):
        return job
    anew = max(starts)
    sure = max(moment for moment in _seen(job, observed, from_text(begun)) if moment <= anew)
    counted = job.status.active_seconds + round((sure - from_text(begun)).total_seconds())
    status = job.status.model_copy(update={"active_seconds": counted, "active_since": to_text(anew)})
    return replace(job, status=status)


def _seen(job: HarborRLJob, observed: Observed, begun: datetime) -> Iterator[datetime]:
    """Moments of the stretch that earlier passes wrote down, its begin first."""
    status, cluster = job.status, _cluster(job, observed)
    marks = [condition.last_transition_time for condition in status.conditions]
    marks += [status.rollout.last_dump_time or ""] if status.rollout else []
    marks += [status.checkpoint.saved_at or ""] if status.checkpoint else []
    marks += [str(cluster["metadata"].get("creationTimestamp", ""))] if cluster is not None else []
    yield begun
    yield from (moment for mark in marks if mark and (moment := from_text(mark)) > begun)


def keep_time(job: HarborRLJob, observed: Observed, decided: Plan, now: datetime) -> Plan:
    """`decided` with the clock started or stopped as its status asks, and looked at again when the time is up."""
    status = decided.status
    idle = status.finished_at is not None or status.phase in (Phase.SUSPENDED, Phase.QUEUED, Phase.REFUSED)
    if status.active_since is not None and idle:
        passed = round(active_seconds(status, _stopped(job, observed, now)))
        status = status.model_copy(update={"active_seconds": passed, "active_since": None})
    elif status.active_since is None and status.started_at is not None and not idle:
        begun = now
        if job.status.phase is Phase.QUEUED:
            begun = _last(queue_changes(_cluster(job, observed), "False"), now - _LONGEST_BLINDNESS, now)
        status = status.model_copy(update={"active_since": to_text(begun)})
    return replace(decided, status=status, requeue_after=_until_deadline(job, status, decided.requeue_after, now))


_LONGEST_BLINDNESS = timedelta(days=7)
"""An older admission is of another stretch."""


def _stopped(job: HarborRLJob, observed: Observed, now: datetime) -> datetime:
    """When the stretch that counts ended, if it has."""
    since = job.status.active_since
    return _last(queue_changes(_cluster(job, observed), "True"), from_text(since), now) if since else now


def _cluster(job: HarborRLJob, observed: Observed) -> Object | None:
    return observed.ray_clusters.get(job.names.ray_cluster(job.status.attempt))


def _last(moments: Iterator[datetime], earliest: datetime, now: datetime) -> datetime:
    """The newest of `moments` between the two, else now."""
    return max((moment for moment in moments if earliest <= moment <= now), default=now)


def _until_deadline(job: HarborRLJob, status: JobStatus, again: float | None, now: datetime) -> float | None:
    limit = job.spec.active_deadline_seconds
    if limit is None or status.active_since is None:
        return again
    left = max(limit - active_seconds(status, now) + 1, 1.0)
    return left if again is None else min(again, left)
