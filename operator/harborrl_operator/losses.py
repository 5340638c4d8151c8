"""What the end of an incarnation costs: work that was done after the newest complete checkpoint."""

from dataclasses import dataclass
from datetime import datetime

from harborrl_operator.clock import from_text, to_text
from harborrl_operator.draft import Draft
from harborrl_operator.models.status import AttemptStatus, LossStatus
from harborrl_operator.resolve import gpus_per_node
from harborrl_operator.work_end import End


@dataclass(frozen=True)
class Loss:
    rollouts: int = 0
    gpu_hours: float = 0.0


def trained_so_far(draft: Draft) -> int | None:
    """Rollouts trained over the run; None before the driver of the current attempt reported."""
    rollout = draft.value("rollout")
    return rollout.trained if rollout and draft.value("incarnation") else None


def kept_rollouts(draft: Draft) -> int:
    """Rollouts that the newest complete checkpoint of the run holds: where a resume goes on."""
    checkpoint, start = draft.value("checkpoint"), draft.value("resume")
    saved = checkpoint.rollout_id + 1 if checkpoint and checkpoint.rollout_id is not None else 0
    return max(saved, start.first_rollout if start else 0)


def lost_since_checkpoint(draft: Draft, until: datetime) -> Loss:
    """As status tells of the incarnation that ended at `until`; nothing when it never ran."""
    since = draft.trainer.running_since
    if since is None:
        return Loss()
    rollout, checkpoint = draft.value("rollout"), draft.value("checkpoint")
    kept = kept_rollouts(draft)
    begun = from_text(since)
    if checkpoint and checkpoint.saved_at:
        begun = max(begun, from_text(checkpoint.saved_at))
    gpus = gpus_per_node(draft.job.spec) * draft.job.spec.trainer.nodes
    hours = max((until - begun).total_seconds(), 0) / 3600
    return Loss(max(rollout.trained - kept, 0) if rollout else 0, round(gpus * hours, 2))


def caveat(draft: Draft, end: End) -> str:
    """What a message about the end has to add where its time is an estimate and GPUs were held."""
    gpus = gpus_per_node(draft.job.spec)
    if end.is_seen or not gpus or draft.trainer.running_since is None:
        return ""
    return f" Its end was not seen: lost GPU time is counted to {to_text(end.at)}, an estimate."


def account(draft: Draft, until: datetime) -> Loss:
    """Add the current incarnation's loss to its attempt and to the run, once: a later pass finds it counted."""
    incarnation = draft.value("incarnation") or 0
    if incarnation <= draft.trainer.accounted_incarnation:
        return Loss()
    loss = lost_since_checkpoint(draft, until)
    attempts: list[AttemptStatus] = draft.value("attempts")
    if attempts:
        draft.change_attempt(
            incarnations=incarnation,
            lost_rollouts=attempts[-1].lost_rollouts + loss.rollouts,
            lost_gpu_hours=round(attempts[-1].lost_gpu_hours + loss.gpu_hours, 2),
        )
    total = draft.value("lost") or LossStatus()
    draft.fields["lost"] = LossStatus(
        rollouts=total.rollouts + loss.rollouts, gpu_hours=round(total.gpu_hours + loss.gpu_hours, 2)
    )
    draft.update_trainer(accounted_incarnation=incarnation)
    return loss
