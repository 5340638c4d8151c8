"""Which head is known and which is new: told apart by their uids, since KubeRay may give one the name of the last."""

from harborrl_operator.draft import Draft
from harborrl_operator.incarnations import current_pods
from harborrl_operator.models.status import FateStatus, TrainerStatus
from harborrl_operator.observed import Object, head_pod, name_of, uid_of
from harborrl_operator.progress import FINAL_STATES

NO_HEAD = {"head_pod": None, "head_uid": None}


def note_head(draft: Draft, head: Object) -> None:
    draft.update_trainer(head_pod=name_of(head), head_uid=uid_of(head))


def is_known_head(trainer: TrainerStatus, pod: Object) -> bool:
    """Whether earlier passes followed this one. A status that an older operator wrote has its name alone."""
    if trainer.head_uid is None:
        return name_of(pod) == trainer.head_pod
    return uid_of(pod) == trainer.head_uid


def is_heads(trainer: TrainerStatus, fate: FateStatus | None) -> bool:
    """Whether it befell the head that is known."""
    if fate is None or trainer.head_pod is None:
        return False
    return fate.uid == trainer.head_uid if fate.uid and trainer.head_uid else fate.pod == trainer.head_pod


def successor(draft: Draft) -> Object | None:
    """The live head in the place of the one that earlier passes knew."""
    head = head_pod(current_pods(draft))
    if head is None or draft.trainer.head_pod is None or is_known_head(draft.trainer, head):
        return None
    return head


def is_of_known_head(draft: Draft) -> bool:
    """Whether the report is still that of the incarnation which earlier passes followed."""
    return bool(draft.value("incarnation") == draft.job.status.incarnation)


def hear_successor_later(draft: Draft) -> None:
    """While the books of a lost head are closed, what the next one reports is left for the pass after.

    It must not be counted as the lost one's. A verdict is heard at once: two ends are charged as one.
    """
    report, known = draft.progress, draft.job.status.incarnation
    if report is None or successor(draft) is None or report.driver.state in FINAL_STATES:
        return
    if known is None or report.incarnation > known:
        draft.report = None
