"""How an attempt ends and whether another one follows."""

from datetime import datetime, timedelta
from typing import Any

from harborrl_operator.budgets import FINAL_REASON, Budget, charge, is_same_wall, recovered
from harborrl_operator.clock import from_text, to_text
from harborrl_operator.conditions import Verdict
from harborrl_operator.constants import Cause, Reason
from harborrl_operator.draft import Draft, Plan
from harborrl_operator.heads import is_heads, is_of_known_head, successor
from harborrl_operator.in_place import is_met_again, keeps_its_quota, restart_in_place
from harborrl_operator.losses import account, caveat, kept_rollouts, trained_so_far
from harborrl_operator.models.status import AttemptStatus, FailureCounts
from harborrl_operator.observed import Object
from harborrl_operator.progress import FailureClass
from harborrl_operator.work_end import work_end

MOST_LISTED = 20
"""Attempts that status lists: with 512 characters a message it stays far below what etcd and people can take."""


def attempt_failed(draft: Draft, failure: FailureClass, message: str, cause: Cause) -> Plan:
    """Record the attempt, take its cluster away, and either wait for the next one or fail the job."""
    end = work_end(draft)
    message += caveat(draft, end)
    draft.fields["failures"], budget = _charge(draft, failure)
    is_placed = cause is not Cause.START_DEADLINE  # else the quota that it holds has no nodes for it
    is_wall = failure == "infrastructure" and is_met_again(draft, message, cause)
    goes_on = failure == "infrastructure" and not budget.is_spent and not is_wall
    if goes_on and is_placed and keeps_its_quota(draft):
        keep = successor(draft) if is_of_known_head(draft) else None
        return restart_in_place(draft, message, cause, budget, end.at, keep=keep)
    before, record = _record(draft, failure, message, cause, end.at)
    final = _final(before, record, budget, message, is_wall=is_wall)
    if final is not None:
        return draft.finish(
            _with_a_way_on(draft, final), succeeded=False, keep_cluster=draft.job.spec.retries.keep_cluster_seconds > 0
        )
    draft.fields.update(
        attempt=draft.attempt + 1,
        incarnation=None,
        retry_at=to_text(draft.now + timedelta(seconds=budget.pause)),
        starting_since=None,
        suspension=None,
    )
    draft.forget_cluster()
    draft.delete_stale_clusters()
    return back_off(draft)


def _charge(draft: Draft, failure: FailureClass) -> tuple[FailureCounts, Budget]:
    """The counts with this failure, and what it leaves of its budget."""
    before: FailureCounts = draft.value("failures") or FailureCounts()
    if failure == "infrastructure":
        kept = kept_rollouts(draft)
        before = recovered(before, kept, draft.now)
        before = before.model_copy(update={"infrastructure_at": draft.text_now, "infrastructure_kept": kept})
    return charge(failure, before, draft.job.spec.retries)


def head_replaced(draft: Draft, head: Object) -> Plan:
    """KubeRay put a head in the place of a lost one: 1.5 always does, newer ones where we let them."""
    message, cause = what_befell_head(draft)
    counts, budget = _charge(draft, "infrastructure")
    end = work_end(draft, at_latest=from_text(head["metadata"]["creationTimestamp"]))
    said = message + caveat(draft, end)
    if budget.is_spent or is_met_again(draft, said, cause):
        return attempt_failed(draft, "infrastructure", message, cause)
    draft.fields["failures"] = counts
    return restart_in_place(draft, said, cause, budget, end.at, keep=head)


def what_befell_head(draft: Draft) -> tuple[str, Cause]:
    """Of a head that is gone: what was seen of its end while it could be."""
    head = draft.trainer.head_pod
    which = f"Head pod {head}" if head else f"The head pod that reported incarnation {draft.value('incarnation')}"
    said = f"{which} is gone and the driver had not finished."
    fate = draft.trainer.fate
    if fate is not None and is_heads(draft.trainer, fate):
        return f"{said} {fate.message}", Cause(fate.cause)
    return said, Cause.POD_DELETED if draft.cluster is not None else Cause.CLUSTER_DELETED


def record_deadline(draft: Draft, said: str, cause: Cause) -> str:
    """Write down what the end of the job's time costs an attempt that is not over; `said` with what is lost."""
    attempts = draft.value("attempts")
    if not attempts or attempts[-1].finished_at:
        return said
    end = work_end(draft)
    lost = account(draft, end.at).rollouts
    if lost:
        said += f" {lost} rollouts that were trained after the newest checkpoint are lost."
    said += caveat(draft, end)
    draft.change_attempt(**_how_it_ended(draft, said, cause))
    return said


def _how_it_ended(draft: Draft, message: str, cause: Cause) -> dict[str, Any]:
    return {
        "finished_at": draft.text_now,
        "outcome": "Failed",
        "cause": cause.value,
        "message": message[:512],
        "at_rollout": trained_so_far(draft),
    }


def _record(
    draft: Draft, failure: FailureClass, message: str, cause: Cause, until: datetime
) -> tuple[AttemptStatus | None, AttemptStatus]:
    """The attempt before this one, and this one as it is written down."""
    draft.open_attempt()
    account(draft, until)
    changes = {"failure_class": failure, **_how_it_ended(draft, message, cause)}
    fate = draft.trainer.fate
    if fate is not None and fate.node and failure == "infrastructure":
        changes["node"] = fate.node
    draft.change_attempt(**changes)
    listed: list[AttemptStatus] = draft.value("attempts")[-MOST_LISTED:]
    draft.fields["attempts"] = listed
    return listed[-2] if len(listed) > 1 else None, listed[-1]


def _final(
    before: AttemptStatus | None, record: AttemptStatus, budget: Budget, message: str, *, is_wall: bool
) -> Verdict | None:
    """Why no other attempt follows, None when one does."""
    if record.cause == Cause.RESTART_AT_ZERO:
        return Verdict(Reason.RESTART_AT_ZERO, message)
    reason = FINAL_REASON[budget.failure]
    if budget.is_spent and budget.limit == 1:
        return Verdict(reason, message)
    where = "before its driver reported" if record.at_rollout is None else f"at rollout {record.at_rollout}"
    if is_wall:
        return Verdict(reason, f"Attempt {record.number} ended alike twice {where}; a third time would too: {message}")
    if is_same_wall(before, record):
        said = f"Attempts {record.number - 1} and {record.number} ended alike {where}; a third would too: {message}"
        return Verdict(reason, said)
    if budget.is_spent:
        said = f"Attempt {record.number}: {budget.failure} failure {budget.spent} of {budget.limit}, none is left:"
        return Verdict(reason, f"{said} {message}")
    return None


def _with_a_way_on(draft: Draft, final: Verdict) -> Verdict:
    """The end is final, and what was trained is not lost with it."""
    kept = draft.value("checkpoint")
    if kept is None or kept.rollout_id is None or final.reason is Reason.RESTART_AT_ZERO:
        return final
    said = (
        f"{final.message.rstrip('.')}. This job starts no more: one of another name goes on after rollout"
        f" {kept.rollout_id} with resumeFrom: {{job: {draft.job.name}}} and the same storage.checkpoints."
    )
    return Verdict(final.reason, said)


def back_off(draft: Draft) -> Plan:
    """Wait for the moment of the next attempt."""
    attempts = draft.value("attempts")
    failure = attempts[-1].failure_class if attempts else "failed"
    message = (
        f"Attempt {draft.attempt} starts at {draft.value('retry_at')}; the one before ended ({failure}):"
        f" {attempts[-1].message if attempts else 'unknown'}"
    )
    verdict = Verdict(Reason.BACKING_OFF, message)
    wait = (from_text(draft.value("retry_at")) - draft.now).total_seconds()
    return draft.between(verdict, "Between two attempts.", requeue_after=max(wait, 0.5))


def is_backing_off(draft: Draft) -> bool:
    retry_at = draft.value("retry_at")
    return retry_at is not None and draft.now < from_text(retry_at)
