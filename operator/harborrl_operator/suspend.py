"""`spec.suspend`: ask the driver for a checkpoint, wait for it within bounds, release everything, say what was lost.

The operator asks by a ConfigMap that the supervisor reads, and hears the answer in the progress report: a driver that
saved and left is STOPPED (docs/contracts.md, "Requests").
"""

from datetime import datetime, timedelta

from harborrl_operator.clock import from_text, to_text
from harborrl_operator.conditions import Verdict
from harborrl_operator.constants import ConditionType, Phase, Reason
from harborrl_operator.draft import Draft, Plan
from harborrl_operator.heads import NO_HEAD, is_known_head
from harborrl_operator.incarnations import current_pods
from harborrl_operator.losses import account, kept_rollouts
from harborrl_operator.missing_rights import mend_rights
from harborrl_operator.models.status import SuspensionStatus
from harborrl_operator.observed import head_pod
from harborrl_operator.pace import WHILE_ENDING_SECONDS
from harborrl_operator.reporting import is_live
from harborrl_operator.resources import config_maps
from harborrl_operator.work_end import work_end


def suspended(draft: Draft) -> Plan:
    """Suspending until nothing is held any more, Suspended from then on."""
    draft.set(ConditionType.STALLED, "False", Reason.NOT_RUNNING)
    asked = _asked(draft)
    if asked is not None and draft.now < _patience_ends(draft, asked):
        return _wait(draft, asked)
    return _release(draft)


def take_back(draft: Draft) -> None:
    """`spec.suspend` is false: nobody shall stop any more; a driver that has been told already stops all the same."""
    draft.delete("ConfigMap", [draft.observed.request])
    suspension = draft.job.status.suspension
    said = ""
    if suspension is not None and suspension.released_at is None and _concerns(draft, suspension):
        draft.fields["suspension"] = suspension.model_copy(update={"withdrawn": True})
        said = "The suspend was taken back. A driver that had been told stops once and goes on from its checkpoint."
    else:
        draft.fields["suspension"] = None
        if suspension is not None and suspension.released_at is not None:
            _starts_again(draft)
    draft.set(ConditionType.SUSPENDED, "False", Reason.NOT_SUSPENDED, said)


def _starts_again(draft: Draft) -> None:
    """What was said of the suspend is over with the first pass after it; what this pass finds is said after this."""
    for kind in (ConditionType.AGENT_SERVER_READY, ConditionType.TRAINER_READY):
        draft.set(kind, "False", Reason.NOT_STARTED, "Starts again after a suspend.")
    draft.set(ConditionType.PROGRESSING, "False", Reason.NOT_RUNNING, "Starts again after a suspend.")


def was_asked_to_stop(draft: Draft) -> bool:
    """Whether the driver stopped because a suspend, since taken back, asked it to; whoever took its cluster since."""
    suspension: SuspensionStatus | None = draft.value("suspension")
    if suspension is None or suspension.released_at is not None or not _concerns(draft, suspension):
        return False
    if draft.cluster is None:
        return is_live(draft, draft.progress)
    return suspension.cluster == draft.cluster_uid


def go_on(draft: Draft) -> Plan:
    """The driver has stopped for a suspend that was taken back: its cluster goes, the attempt goes on in a new one."""
    account(draft, work_end(draft).at)
    draft.delete("RayCluster", [draft.cluster])
    draft.update_trainer(
        **NO_HEAD, released_cluster=draft.cluster_uid, released_incarnation=draft.value("incarnation") or 0
    )
    draft.fields.update(starting_since=None)
    verdict = Verdict(Reason.WAITING_FOR_OLD_PODS, "The driver stopped for a suspend that was taken back; it goes on.")
    return draft.between(verdict, verdict.message, requeue_after=WHILE_ENDING_SECONDS)


def is_released(draft: Draft) -> bool:
    """Whether an earlier pass took away the cluster that is still there."""
    return draft.cluster is not None and draft.cluster_uid == draft.trainer.released_cluster


def await_release(draft: Draft) -> Plan:
    """It is told to go in every pass: the API server may have refused the first time, or not have answered."""
    draft.delete("RayCluster", [draft.cluster])
    said = f"RayCluster {draft.job.names.ray_cluster(draft.attempt)} was given back and ends; a new one follows it."
    return draft.between(Verdict(Reason.WAITING_FOR_OLD_PODS, said), said, requeue_after=WHILE_ENDING_SECONDS)


def _concerns(draft: Draft, suspension: SuspensionStatus) -> bool:
    return (suspension.attempt, suspension.incarnation) == (draft.attempt, draft.value("incarnation"))


def _asked(draft: Draft) -> SuspensionStatus | None:
    """The request that is worth waiting for: a live head whose driver runs. None when there is nothing to save."""
    if draft.cluster is None or draft.cluster["spec"].get("suspend"):
        return None
    incarnation = _running_incarnation(draft)
    if incarnation is None:
        return None
    before = draft.job.status.suspension
    if before is not None and not before.withdrawn and _concerns(draft, before):
        return before if before.released_at is None else None
    return SuspensionStatus(
        requested_at=draft.text_now, attempt=draft.attempt, incarnation=incarnation, cluster=draft.cluster_uid
    )


def _running_incarnation(draft: Draft) -> int | None:
    """Whose driver runs, as the report says or, where there is none to read, as it last said of this head."""
    head = head_pod(current_pods(draft))
    if head is None:
        return None
    progress = draft.progress
    if progress is not None:
        state, incarnation = progress.driver.state, progress.incarnation
    elif is_known_head(draft.trainer, head):
        state, incarnation = draft.trainer.driver_state or "", draft.value("incarnation") or 0
    else:
        return None
    runs = state == "RUNNING" and incarnation > draft.trainer.released_incarnation
    return incarnation if runs else None


def _patience_ends(draft: Draft, asked: SuspensionStatus) -> datetime:
    return from_text(asked.requested_at) + timedelta(seconds=draft.job.spec.checkpoint.suspend_wait_seconds)


def _wait(draft: Draft, asked: SuspensionStatus) -> Plan:
    draft.fields["suspension"] = asked
    request_id = f"a{asked.attempt}-i{asked.incarnation}-{asked.requested_at}"
    mend_rights(draft)  # else the request is not read
    draft.apply(config_maps.stop_request(draft.job, request_id, asked.attempt, asked.incarnation))
    if not draft.observed.progress_exists:
        draft.apply(config_maps.progress(draft.job))  # the answer needs its place
    ends = _patience_ends(draft, asked)
    said = f"Waits until {to_text(ends)} at most for the driver to save and stop. {_standing(draft)}"
    verdict = Verdict(Reason.SUSPENDING, said)
    draft.set(ConditionType.SUSPENDED, "False", verdict.reason, said)
    left = (ends - draft.now).total_seconds()
    return draft.end(Phase.SUSPENDING, verdict, requeue_after=min(left, 30.0))


def _standing(draft: Draft) -> str:
    rollout = draft.value("rollout")
    trained = rollout.trained if rollout else 0
    return f"{trained} rollouts are trained, a resume would go on at rollout {kept_rollouts(draft)} so far."


def _release(draft: Draft) -> Plan:
    """Nothing is held; the volumes and the status say where a resume goes on."""
    draft.release()
    incarnation = draft.value("incarnation") or 0
    draft.fields.update(starting_since=None, retry_at=None)
    draft.update_trainer(**NO_HEAD, released_cluster=draft.cluster_uid, released_incarnation=incarnation)
    suspension = draft.job.status.suspension or SuspensionStatus(
        requested_at=draft.text_now, attempt=draft.attempt, incarnation=incarnation
    )
    if suspension.released_at is None:
        suspension = suspension.model_copy(update={"released_at": draft.text_now, "withdrawn": False})
    held = len(draft.observed.trainer_pods)
    if not held and suspension.lost_rollouts is None:
        end = work_end(draft, at_latest=_killed_by(draft))
        suspension = suspension.model_copy(update={"lost_rollouts": account(draft, end.at).rollouts})
    draft.fields["suspension"] = suspension
    verdict = _verdict(draft, held, suspension.lost_rollouts or 0)
    draft.set(ConditionType.SUSPENDED, "False" if held else "True", verdict.reason, verdict.message)
    for kind in (ConditionType.AGENT_SERVER_READY, ConditionType.TRAINER_READY):
        draft.set(kind, "False", Reason.RELEASED, "Suspended.")
    draft.set(ConditionType.PROGRESSING, "False", Reason.NOT_RUNNING, "Suspended.")
    phase = Phase.SUSPENDING if held else Phase.SUSPENDED
    return draft.end(phase, verdict, requeue_after=WHILE_ENDING_SECONDS if held else None)


def _killed_by(draft: Draft) -> datetime | None:
    """When the kubelet has ended what an earlier pass released; None where no pass saw anything to release."""
    before = draft.job.status.suspension
    if before is None or before.released_at is None:
        return None
    return from_text(before.released_at) + timedelta(seconds=draft.job.spec.checkpoint.grace_seconds)


def _verdict(draft: Draft, held: int, lost: int) -> Verdict:
    if held:
        return Verdict(Reason.SUSPENDING, f"{held} trainer pods save and end.")
    goes_on = f"Nothing is held. Set spec.suspend to false to go on at rollout {kept_rollouts(draft)}."
    if not lost:
        return Verdict(Reason.SUSPENDED, goes_on)
    wait = draft.job.spec.checkpoint.suspend_wait_seconds
    return Verdict(
        Reason.CHECKPOINT_MISSED,
        f"{goes_on} {lost} rollouts that were trained after the newest checkpoint are lost: no checkpoint was saved"
        f" within checkpoint.suspendWaitSeconds = {wait}. Raise it, or lower trainer.config.saveInterval.",
    )
