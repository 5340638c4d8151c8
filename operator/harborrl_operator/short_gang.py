"""A gang that is short of a pod while its driver still runs.

A driver whose worker died usually fails within minutes. One that does not, hangs in a collective call: nothing it says
tells that from a long rollout, so that a missing pod and a missing rollout together end the attempt.
"""

from harborrl_operator.attempts import attempt_failed
from harborrl_operator.clock import from_text
from harborrl_operator.constants import Cause
from harborrl_operator.draft import Draft, Plan
from harborrl_operator.gang import missing_pods
from harborrl_operator.observed import Object, is_terminating, pod_phase
from harborrl_operator.progress import stall_seconds


def note_short_gang(draft: Draft, pods: tuple[Object, ...]) -> str:
    """Keeps `shortSince`. What is missing, as a sentence; empty while the gang is whole.

    A pod that lives and is not ready, or one that came in the place of another, is none that is missing.
    """
    wanted = draft.job.spec.trainer.nodes
    alive = [pod for pod in pods if pod_phase(pod) == "Running" and not is_terminating(pod)]
    if len(alive) >= wanted:
        draft.update_trainer(short_since=None)
        return ""
    since = draft.trainer.short_since or draft.text_now
    draft.update_trainer(short_since=since)
    fate = draft.trainer.fate
    why = f" {fate.message}" if fate is not None else ""
    return f"The driver runs without a part of its gang since {since}: {missing_pods(pods, wanted)}.{why}"


def lost_with_a_pod(draft: Draft, short: str) -> Plan | None:
    """The end of an attempt that collected nothing since it lost a pod: a driver that goes on without it is left."""
    if not short:
        return None
    spec, rollout = draft.job.spec, draft.value("rollout")
    signs = (draft.trainer.short_since, draft.trainer.running_since, rollout.last_dump_time if rollout else None)
    since = max(from_text(sign) for sign in signs if sign)
    patience = max(spec.trainer.start_deadline_seconds, stall_seconds(spec, rollout))
    if (draft.now - since).total_seconds() <= patience:
        return None
    return attempt_failed(
        draft, "infrastructure", f"{short} No rollout followed within {patience:.0f} s.", _cause(draft)
    )


def _cause(draft: Draft) -> Cause:
    fate = draft.trainer.fate
    return Cause(fate.cause) if fate is not None and fate.cause in set(Cause) else Cause.POD_DELETED
