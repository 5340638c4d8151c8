"""What the end of a start deadline ends: a job that never ran, or an attempt of a run that did.

`trainer.startDeadlineSeconds` is there for a gang that does not come up. Of a run of weeks it says one bad night of the
infrastructure, which has a budget of its own.
"""

from harborrl_operator.attempts import attempt_failed, record_deadline
from harborrl_operator.conditions import Verdict
from harborrl_operator.constants import Cause, Reason
from harborrl_operator.draft import Draft, Plan
from harborrl_operator.fates import is_unconfirmed
from harborrl_operator.starting import overdue


def late_start(draft: Draft, obstacle: Verdict) -> Plan | None:
    """The pass that ends what did not come up in time, None while there is time left."""
    if _waits_for_a_person(draft, obstacle):
        draft.fields["starting_since"] = None  # counted from when the way is free
        return None
    late = overdue(draft, obstacle)
    if late is None:
        return None
    if is_first_start(draft):
        said = record_deadline(draft, late.message, Cause.START_DEADLINE)
        return draft.finish(Verdict(late.reason, said), succeeded=False)
    return attempt_failed(draft, "infrastructure", late.message, Cause.START_DEADLINE)


def is_first_start(draft: Draft) -> bool:
    """Whether nothing of the job ever ran: no earlier attempt, no restart, no suspend or queue that took a driver."""
    attempts, trainer = draft.value("attempts"), draft.trainer
    restarts = attempts[-1].restarts if attempts else 0
    return draft.attempt == 1 and not restarts and not trainer.released_incarnation and trainer.running_since is None


def _waits_for_a_person(draft: Draft, obstacle: Verdict) -> bool:
    """Pods of a node that is cut off: nothing is held, and nobody but a person knows whether they still write."""
    is_waiting = draft.cluster is None and obstacle.reason is Reason.WAITING_FOR_OLD_PODS
    return is_waiting and any(is_unconfirmed(pod, draft.now) for pod in draft.observed.trainer_pods)
