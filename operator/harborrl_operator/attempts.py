"""How an attempt ends and whether another one follows."""

from datetime import timedelta

from harborrl_operator.clock import from_text, to_text
from harborrl_operator.conditions import Verdict
from harborrl_operator.constants import ConditionType, Phase, Reason
from harborrl_operator.draft import Draft, Plan
from harborrl_operator.progress import FailureClass

_FINAL_REASON: dict[FailureClass, Reason] = {
    "configuration": Reason.CONFIGURATION_FAILURE,
    "storage": Reason.STORAGE_FAILURE,
    "infrastructure": Reason.INFRASTRUCTURE_FAILURE,
    "application": Reason.APPLICATION_FAILURE,
}
_RETRIED: tuple[FailureClass, ...] = ("infrastructure", "application")

FIRST_BACKOFF_SECONDS, LONGEST_BACKOFF_SECONDS = 15.0, 600.0


def backoff(failures: int, first: float = FIRST_BACKOFF_SECONDS) -> float:
    """Seconds to wait after the n-th failure: doubled each time, bounded."""
    return min(first * 2.0 ** max(failures - 1, 0), LONGEST_BACKOFF_SECONDS)


def attempt_failed(draft: Draft, failure: FailureClass, message: str) -> Plan:
    """Record the attempt, take its cluster away, and either wait for the next one or fail the job."""
    number, most = draft.attempt, draft.job.spec.retries.max_attempts
    rollout = draft.value("rollout")
    draft.open_attempt()
    draft.change_attempt(
        finished_at=draft.text_now,
        outcome="Failed",
        failure_class=failure,
        message=message[:512],
        lost_rollouts=rollout.lost_rollouts if rollout else 0,
    )
    if failure not in _RETRIED:
        return draft.finish(Verdict(_FINAL_REASON[failure], message), succeeded=False)
    if number >= most:
        said = f"Attempt {number} of {most} failed and none is left: {message}"
        return draft.finish(Verdict(_FINAL_REASON[failure], said), succeeded=False)
    draft.fields.update(
        attempt=number + 1,
        retry_at=to_text(draft.now + timedelta(seconds=backoff(number))),
        starting_since=None,
    )
    draft.update_trainer(head_pod=None, ray_cluster=None, driver_state=None, submission_id=None, released_incarnation=0)
    draft.delete_stale_clusters()
    return back_off(draft)


def back_off(draft: Draft) -> Plan:
    """Wait for the moment of the next attempt."""
    attempts = draft.value("attempts")
    message = (
        f"Attempt {draft.attempt} of {draft.job.spec.retries.max_attempts} starts at {draft.value('retry_at')};"
        f" the one before failed: {attempts[-1].message if attempts else 'unknown'}"
    )
    verdict = Verdict(Reason.BACKING_OFF, message)
    draft.set(ConditionType.TRAINER_READY, "False", verdict.reason, message)
    draft.set(ConditionType.PROGRESSING, "False", Reason.NOT_RUNNING, "Between two attempts.")
    draft.set(ConditionType.STALLED, "False", Reason.NOT_RUNNING)
    wait = (from_text(draft.value("retry_at")) - draft.now).total_seconds()
    return draft.end(Phase.STARTING_TRAINER, verdict, requeue_after=max(wait, 0.5))


def is_backing_off(draft: Draft) -> bool:
    retry_at = draft.value("retry_at")
    return retry_at is not None and draft.now < from_text(retry_at)
