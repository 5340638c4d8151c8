"""Kueue took the quota and gave it back while no pass looked: the head is another one, and that is no failure."""

from harborrl_operator.clock import from_text, to_text
from harborrl_operator.draft import Draft
from harborrl_operator.heads import NO_HEAD, is_known_head
from harborrl_operator.losses import account
from harborrl_operator.work_end import work_end
from harborrl_operator.workloads import is_held_back, queue_changes


def note_admission(draft: Draft) -> None:
    """Beside a head that is there: the admission that it lives by."""
    draft.update_trainer(admitted_at=_newest_admission(draft))


def was_preempted_unseen(draft: Draft) -> bool:
    """Whether the known head is gone and its RayCluster was let start anew since.

    Two readings of KubeRay's own stamp are compared; its clock need not agree with ours.
    """
    trainer, anew = draft.trainer, _newest_admission(draft)
    if trainer.head_pod is None or anew is None or is_held_back(draft.cluster):
        return False
    if any(is_known_head(trainer, pod) for pod in draft.observed.pods_of_attempt(draft.attempt)):
        return False
    if trainer.admitted_at is not None:
        return anew != trainer.admitted_at
    # An operator that did not write it down saw the head last.
    return trainer.running_since is not None and from_text(anew) > from_text(trainer.running_since)


def note_unseen_preemption(draft: Draft) -> None:
    """As if a pass had found it queued: what was lost is counted, no budget is charged, the attempt goes on."""
    if not was_preempted_unseen(draft):
        return
    account(draft, work_end(draft).at)
    released, report = draft.job.status.incarnation or 0, draft.progress
    if report is not None and report.driver.state == "STOPPED":
        released = max(released, report.incarnation)  # it was taken as well, before a pass heard of it
    draft.update_trainer(**NO_HEAD, released_incarnation=released, driver_state=None, running_since=None, fate=None)
    draft.fields["suspension"] = None


def _newest_admission(draft: Draft) -> str | None:
    newest = max(queue_changes(draft.cluster, "False"), default=None)
    return to_text(newest) if newest is not None else None
