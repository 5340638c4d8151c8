"""What the supervisor reported, copied into status and into the conditions that hang on it alone."""

from harborrl_operator.conditions import Verdict
from harborrl_operator.constants import ConditionType, Reason
from harborrl_operator.draft import Draft
from harborrl_operator.models.status import AgentServerStatus, CheckpointStatus
from harborrl_operator.progress import Progress, Unreadable

MIB = 1024**2


def unreadable(draft: Draft) -> Verdict | None:
    """A report that is there and cannot be read, as a whole or in part."""
    if isinstance(draft.report, Unreadable):
        which, why = "cannot be read", draft.report.why
    elif draft.progress is not None and draft.progress.faults:
        which, why = "cannot be read in part", "; ".join(draft.progress.faults.values())
    else:
        return None
    said = f"ConfigMap {draft.job.names.progress} {which}: {why}. The supervisor's next write replaces it."
    return Verdict(Reason.PROGRESS_UNREADABLE, said)


def is_live(draft: Draft, progress: Progress | None) -> bool:
    """Whether the report is of an incarnation whose cluster nobody has taken away."""
    return progress is not None and progress.incarnation > draft.trainer.released_incarnation


def note_progress(draft: Draft) -> None:
    """Copy the report into status; what a new attempt has not yet written is left as the last one said."""
    progress = draft.progress
    if draft.cluster_uid not in ("", draft.trainer.released_cluster):
        draft.update_trainer(released_cluster=None)
    if progress is None:
        return
    if draft.trainer.released_cluster is not None:
        draft.update_trainer(released_incarnation=progress.incarnation)
    server = draft.value("agent_server") or AgentServerStatus()
    begun = progress.incarnation != draft.value("incarnation")
    _copy(draft, progress)
    if progress.agent_server is not None:
        draft.fields["agent_server"] = server.model_copy(update=dict(progress.agent_server))
    since = None if begun else draft.trainer.running_since
    if progress.driver.started_at:
        since = progress.driver.started_at
    elif progress.driver.state == "RUNNING" and is_live(draft, progress):
        since = since or draft.text_now
    draft.update_trainer(
        submission_id=progress.driver.submission_id,
        driver_state=progress.driver.state,
        running_since=since,
        notices=progress.notices,
    )
    draft.update_trainer(unreadable_since=None)
    if draft.value("attempts") and draft.value("attempts")[-1].number == draft.attempt:
        draft.change_attempt(incarnations=progress.incarnation)
    _note_start(draft, progress)
    _note_space(draft, progress)


def _copy(draft: Draft, progress: Progress) -> None:
    """Each part as the newest report has it in which it could be read."""
    draft.fields["incarnation"] = progress.incarnation
    for part in ("rollout", "eval", "resume"):
        if part not in progress.faults:
            draft.fields[part] = getattr(progress, part)
    draft.fields["checkpoint"] = _newest(draft.job.status.checkpoint, progress)
    if "rollout" not in progress.faults:
        draft.fields["step"] = progress.step


def _newest(known: CheckpointStatus | None, progress: Progress) -> CheckpointStatus | None:
    """What is reported, but nothing known is forgotten because a volume holds less, until a driver went on from it."""
    seen = progress.checkpoint
    if known is None or known.rollout_id is None:
        return seen
    if seen is None or seen.rollout_id is None:
        return known
    return known if progress.resume is None and seen.rollout_id < known.rollout_id else seen


def _note_start(draft: Draft, progress: Progress) -> None:
    """Sets Resumed: where the incarnation began, and what its start could not bring along."""
    start = progress.resume
    if start is None:
        return
    if start.first_rollout == 0:
        draft.set(ConditionType.RESUMED, "False", Reason.STARTED_FROM_MODEL, "Began at rollout 0, from the model.")
        return
    said = f"Incarnation {progress.incarnation} of attempt {progress.attempt} goes on at rollout {start.first_rollout}."
    reason = Reason.RESUMED_FROM_CHECKPOINT
    if start.optimizer is False:
        reason = Reason.RESUMED_WITHOUT_OPTIMIZER
        said += (
            " The checkpoint holds no optimizer state: Adam's moments begin at zero. Set trainer.config.noSaveOptim to"
            " false to keep them from now on."
        )
    if start.set_aside:
        reason = Reason.RESUMED_FROM_OLDER_CHECKPOINT
        said += f" Set aside as damaged, and what they held is trained again: {', '.join(start.set_aside)}."
    draft.set(ConditionType.RESUMED, "True", reason, said)


def _note_space(draft: Draft, progress: Progress) -> None:
    """Sets LowSpace."""
    if not progress.volumes:
        return
    low = [
        f"storage.{role}: {volume.free_bytes // MIB} MiB free, about {volume.needed_bytes // MIB} MiB will be needed"
        for role, volume in sorted(progress.volumes.items())
        if volume.low
    ]
    if low:
        said = f"{'; '.join(low)}. Make room or grow the claim: a full volume ends the attempt."
        draft.set(ConditionType.LOW_SPACE, "True", Reason.LOW_SPACE, said)
    else:
        draft.set(ConditionType.LOW_SPACE, "False", Reason.SPACE_SUFFICIENT)
