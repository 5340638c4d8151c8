"""Whether a stalled run still shows life: a rollout that is late is said, one that nothing works at is restarted.

Signs of life are moments that the report names: a driver that begins, a dump, a trial that ended or, among those that
run, the oldest one. An evaluation of many rounds collects no rollout, but its oldest trial is never older than the
trial ceiling.
"""

from harborrl_operator.clock import from_text
from harborrl_operator.draft import Draft
from harborrl_operator.progress import Progress, stall_seconds


def note_trials(draft: Draft, progress: Progress) -> None:
    """Keeps `lastTrialAt`: the report has a count alone."""
    before, rollout = draft.job.status.rollout, progress.rollout
    if before is not None and rollout is not None and rollout.trials > before.trials:
        draft.update_trainer(last_trial_at=draft.text_now)


def shows_life(draft: Draft, progress: Progress) -> bool:
    """Within the time that a healthy run may be silent: a run without a pace of its own may load, compile, warm up."""
    rollout, server, spec = progress.rollout, progress.agent_server, draft.job.spec
    limit = stall_seconds(spec, rollout)
    if rollout is None or not rollout.median_seconds:
        limit = max(limit, spec.trainer.start_deadline_seconds)
    signs = (
        draft.trainer.running_since or draft.text_now,
        draft.trainer.last_trial_at,
        rollout.last_dump_time if rollout else None,
        server.oldest_trial_since if server and progress.in_flight else None,
    )
    newest = max(from_text(sign) for sign in signs if sign)
    return (draft.now - newest).total_seconds() <= limit
