"""What stands against a job after its checks: nothing that costs is held for it, and no clock ends it.

Whoever has to act (bring a volume, raise a quota, correct a task) may take days. The preflight looks again by itself.
"""

from harborrl_operator.budgets import backoff
from harborrl_operator.capacity import quota_refusal
from harborrl_operator.clock import seconds_since
from harborrl_operator.conditions import Verdict
from harborrl_operator.constants import ANNOTATION_CONFIG, ConditionType, Phase, Reason
from harborrl_operator.draft import Draft
from harborrl_operator.models.status import PreflightStatus
from harborrl_operator.observed import Object, annotations
from harborrl_operator.preflight_verdict import PreflightOutcome, read_outcome
from harborrl_operator.resolve import ResolvedJob
from harborrl_operator.resources import preflight

PREFLIGHT_BACKOFF_SECONDS = 60.0

_OF_THE_SERVER = (Reason.AGENT_SERVER_UNHEALTHY, Reason.CAPACITY_TOO_SMALL, Reason.TIMEOUT_ORDER)
"""Objections to the agent server itself: it stays, to be looked into."""


def standing_refusal(draft: Draft, job: ResolvedJob) -> Verdict | None:
    """The preflight's objection until it is time to look again, or a quota's until it is raised."""
    pod, key = draft.observed.preflight_pod, preflight.key(job, draft.attempt)
    if draft.preflight.config_hash != key:
        draft.fields["preflight"] = PreflightStatus(config_hash=key)
    outcome = read_outcome(pod) if pod is not None and annotations(pod).get(ANNOTATION_CONFIG) == key else None
    if pod is None or outcome is None:
        return None
    if outcome.refusal is not None:
        if outcome.refusal.reason not in _OF_THE_SERVER:
            _release_server(draft)
            return refuse(draft, pod, outcome, outcome.refusal)
        return None
    beyond = quota_refusal(job, outcome.facts, draft.observed.surroundings)
    if beyond is not None:
        _release_server(draft)
        _stand(draft, beyond)
    return beyond


def refuse(draft: Draft, pod: Object, outcome: PreflightOutcome, refusal: Verdict) -> Verdict:
    """Count it, and run the preflight again after a pause."""
    uid = pod["metadata"]["uid"]
    if draft.preflight.judged_pod != uid:
        counted = {"runs": draft.preflight.runs + 1, "judged_pod": uid}
        draft.fields["preflight"] = draft.preflight.model_copy(update=counted)
    pause = backoff(draft.preflight.runs, PREFLIGHT_BACKOFF_SECONDS)
    left = pause - seconds_since(outcome.finished_at, draft.now)
    if left <= 0:
        draft.delete("Pod", [pod])
    draft.look_again = min(max(left, 2.0), PREFLIGHT_BACKOFF_SECONDS / 2)
    _stand(draft, refusal)
    return refusal


def still_refused(draft: Draft) -> Verdict | None:
    """A refusal stays on display while its repetition is prepared and runs; that has the start deadline's time."""
    before = draft.conditions.get(ConditionType.ADMITTED)
    if not draft.preflight.runs or before is None or before.status != "False" or before.reason not in set(Reason):
        return None
    draft.phase = Phase.REFUSED
    return Verdict(Reason(before.reason), before.message)


def _stand(draft: Draft, refusal: Verdict) -> None:
    draft.phase = Phase.REFUSED
    draft.fields["starting_since"] = None
    draft.set(ConditionType.ADMITTED, "False", refusal.reason, refusal.message)


def _release_server(draft: Draft) -> None:
    draft.delete("Deployment", draft.observed.agent_servers.values())
    if not draft.job.spec.agent_server.url:
        said = "Not held while the job is refused; it starts again for the next preflight."
        draft.set(ConditionType.AGENT_SERVER_READY, "False", Reason.NOT_STARTED, said)
