"""Which pods are of the attempt's current incarnation: one that was restarted in its quota has pods that still end.

They are known by their uids. Our clock and the API server's need not agree, and a name may be given twice.
"""

from collections.abc import Sequence

from harborrl_operator.draft import Draft
from harborrl_operator.observed import Object, uid_of


def current_pods(draft: Draft) -> tuple[Object, ...]:
    """Without those that were told to end with an earlier incarnation."""
    ending = set(draft.trainer.ending_pods)
    return tuple(pod for pod in draft.observed.pods_of_attempt(draft.attempt) if uid_of(pod) not in ending)


def end_pods(draft: Draft, old: Sequence[Object]) -> None:
    """From now on they count for nothing, and each pass tells those that are left to end."""
    draft.update_trainer(ending_pods=[uid_of(pod) for pod in old])
    draft.delete("Pod", old)


def end_old_pods(draft: Draft) -> None:
    """Once more: the API server may have refused the first time, or not have answered."""
    ending = set(draft.trainer.ending_pods)
    if ending:
        end_pods(draft, [pod for pod in draft.observed.pods_of_attempt(draft.attempt) if uid_of(pod) in ending])
