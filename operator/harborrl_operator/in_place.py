"""A failure of the infrastructure in a queue: the pods are made anew, the RayCluster and its quota stay.

A RayCluster that is deleted gives its quota to whoever waits, and its successor starts at the end of the queue
(measured: docs/decisions/0064). What comes up is the attempt's next incarnation, which goes on from the checkpoint.
"""

from datetime import datetime

from harborrl_operator.budgets import Budget, is_same_wall
from harborrl_operator.conditions import Verdict
from harborrl_operator.constants import ANNOTATION_NO_HEAD_RESTART, Cause, Reason
from harborrl_operator.draft import Draft, Plan
from harborrl_operator.heads import NO_HEAD, note_head
from harborrl_operator.incarnations import end_pods
from harborrl_operator.losses import account, trained_so_far
from harborrl_operator.models.status import AttemptStatus, RestartStatus
from harborrl_operator.observed import Object, annotations, is_terminating
from harborrl_operator.pace import WHILE_ENDING_SECONDS
from harborrl_operator.preempted import note_admission
from harborrl_operator.workloads import queue_of


def keeps_its_quota(draft: Draft) -> bool:
    """Whether KubeRay would put new pods into a quota that Kueue has given."""
    cluster = draft.cluster
    if cluster is None or is_terminating(cluster) or cluster["spec"].get("suspend"):
        return False
    return bool(queue_of(cluster)) and annotations(cluster).get(ANNOTATION_NO_HEAD_RESTART) != "true"


def is_met_again(draft: Draft, message: str, cause: Cause) -> bool:
    """Whether this end is the wall that the attempt's last restart ran into: one more would meet it too."""
    attempts: list[AttemptStatus] = draft.value("attempts")
    before = attempts[-1].last_restart if attempts and attempts[-1].number == draft.attempt else None
    if before is None:
        return False
    now = RestartStatus(cause=cause.value, message=message[:512], at_rollout=trained_so_far(draft))
    return is_same_wall(_as_ended(before), _as_ended(now))


def _as_ended(restart: RestartStatus) -> AttemptStatus:
    return AttemptStatus(
        number=0,
        started_at="",
        failure_class="infrastructure",
        cause=restart.cause,
        message=restart.message,
        at_rollout=restart.at_rollout,
    )


def restart_in_place(
    draft: Draft, message: str, cause: Cause, budget: Budget, ended: datetime, *, keep: Object | None = None
) -> Plan:
    """Every pod of the attempt goes; `keep` is a head that KubeRay has already put in the place of the lost one."""
    _note_restart(draft, message, cause, ended)
    old = [pod for pod in draft.observed.pods_of_attempt(draft.attempt) if keep is None or _is_older(pod, keep)]
    end_pods(draft, old)
    since = keep["metadata"]["creationTimestamp"] if keep else draft.text_now
    draft.update_trainer(**NO_HEAD, restarted_at=since)
    if keep is not None:
        note_head(draft, keep)
        note_admission(draft)
    draft.fields.update(starting_since=draft.text_now, suspension=None)
    said = (
        f"Infrastructure failure {budget.spent} of {budget.limit}, within the same RayCluster: new pods go on from the"
        f" checkpoint. {message}"
    )
    verdict = Verdict(Reason.RESTARTING_IN_PLACE, said)
    return draft.between(verdict, "Between two incarnations.", requeue_after=WHILE_ENDING_SECONDS)


def _note_restart(draft: Draft, message: str, cause: Cause, ended: datetime) -> None:
    """What the ended incarnation reported counts for nothing more, but for what its end cost."""
    draft.open_attempt()
    account(draft, ended)
    attempts: list[AttemptStatus] = draft.value("attempts")
    fate = draft.trainer.fate
    ended_so = RestartStatus(
        at=draft.text_now,
        cause=cause.value,
        message=message[:512],
        node=fate.node if fate is not None and fate.node else attempts[-1].node,
        at_rollout=trained_so_far(draft),
    )
    draft.change_attempt(restarts=attempts[-1].restarts + 1, last_restart=ended_so)
    released = draft.value("incarnation") or 0
    draft.update_trainer(
        driver_state=None, submission_id=None, running_since=None, fate=None, released_incarnation=released
    )


def _is_older(pod: Object, head: Object) -> bool:
    return str(pod["metadata"]["creationTimestamp"]) < str(head["metadata"]["creationTimestamp"])
