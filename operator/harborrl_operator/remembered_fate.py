"""What befell a pod is remembered from the pass that sees it: the pod may be gone when its attempt is judged."""

from harborrl_operator.constants import Cause
from harborrl_operator.draft import Draft
from harborrl_operator.fates import first_fate
from harborrl_operator.incarnations import current_pods
from harborrl_operator.losses import trained_so_far
from harborrl_operator.models.status import FateStatus

_EXPLAINS_LITTLE = (Cause.POD_DELETED, Cause.CONTAINER_FAILED)


def note_fate(draft: Draft) -> None:
    """A better explanation replaces a bare deletion, and a run that trains on refutes either."""
    trained, before = trained_so_far(draft), draft.trainer.fate
    if before is not None and before.at_rollout is None:
        before = before.model_copy(update={"at_rollout": trained})
    if before is not None and _is_refuted(before, trained):
        before = None
    seen = first_fate(current_pods(draft), draft.now)
    if seen is not None and (before is None or before.cause in _EXPLAINS_LITTLE):
        is_same = before is not None and before.uid == seen.uid
        before = seen.model_copy(update={"at_rollout": before.at_rollout if before and is_same else trained})
    draft.update_trainer(fate=before)


def cause_by_fate(draft: Draft) -> Cause | None:
    """Of a failure of the infrastructure; a bug or a full volume needs no pod to explain it."""
    fate = draft.trainer.fate
    return Cause(fate.cause) if fate is not None and fate.cause in set(Cause) else None


def _is_refuted(fate: FateStatus, trained: int | None) -> bool:
    """A step that was done when the pod went may still be counted after it; the next one needs the whole gang."""
    return fate.at_rollout is not None and trained is not None and trained > fate.at_rollout + 1
