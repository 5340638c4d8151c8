"""What status remembers of the run's checkpoints: a volume that was exchanged or emptied remembers nothing.

The job document carries it, so that preflight and driver refuse a start behind it. An incarnation that begins within
the same RayCluster reads the document of the attempt's start; of that one, what it reports is judged here.
"""

from harborrl_operator.attempts import attempt_failed
from harborrl_operator.constants import Cause
from harborrl_operator.draft import Draft, Plan
from harborrl_operator.reporting import is_live


def forgotten(draft: Draft) -> Plan | None:
    """The end of a run whose incarnation has just begun on a volume without any checkpoint of it."""
    progress, before = draft.progress, draft.job.status
    known = before.checkpoint
    if progress is None or progress.resume is None or progress.checkpoint is not None:
        return None
    if "checkpoint" in progress.faults:
        return None  # it is there and cannot be read
    if known is None or known.rollout_id is None:
        return None
    begun = before.resume is None or before.incarnation != progress.incarnation
    if not begun or not is_live(draft, progress):
        return None
    said = (
        f"Incarnation {progress.incarnation} began at rollout {progress.resume.first_rollout}, although the run is"
        f" known to have saved a checkpoint of rollout {known.rollout_id} ({known.path}): storage.checkpoints holds"
        " none of this run any more. Bring the volume back that holds it and apply the job under another name with"
        f" resumeFrom.path: {draft.job.names.run_path}; or accept the loss: delete the job and apply it again."
    )
    return attempt_failed(draft, "storage", said, Cause.RESTART_AT_ZERO)
