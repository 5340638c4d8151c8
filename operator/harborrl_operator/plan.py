"""The decision: (job, what was observed, now) -> what to apply, what to delete, the status, when to look again.

Pure and level-triggered: each pass reads the world anew and walks the life of a job from its end to its beginning,
until one paragraph has something to say.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from harborrl_operator.active_time import keep_time, time_spent, without_unseen_queueing
from harborrl_operator.arguments import InvalidArgumentsError
from harborrl_operator.attempts import back_off, is_backing_off, record_deadline
from harborrl_operator.capacity import tightness
from harborrl_operator.checks import first_objection
from harborrl_operator.conditions import Verdict
from harborrl_operator.constants import Cause, ConditionType, Phase, Reason
from harborrl_operator.deadlines import late_start
from harborrl_operator.draft import Draft, Plan
from harborrl_operator.heads import hear_successor_later
from harborrl_operator.incarnations import end_old_pods
from harborrl_operator.isolation import isolate
from harborrl_operator.known_checkpoint import forgotten
from harborrl_operator.missing_rights import mend_rights
from harborrl_operator.models import HarborRLJob, Settings
from harborrl_operator.models.status import ResumeSource
from harborrl_operator.observed import Observed, is_terminating
from harborrl_operator.pace import LOOK_AGAIN_SECONDS
from harborrl_operator.preempted import note_unseen_preemption
from harborrl_operator.preflight_verdict import Facts
from harborrl_operator.refusals import standing_refusal
from harborrl_operator.reporting import note_progress
from harborrl_operator.resolve import ResolvedJob, resolve
from harborrl_operator.resources import config_maps, disruption, rbac, services
from harborrl_operator.retention import after_the_end
from harborrl_operator.running import follow, verdict_of_driver
from harborrl_operator.server_rollout import agent_server_obstacle, note_server_as_it_is, roll
from harborrl_operator.sharing import promised
from harborrl_operator.starting import (
    create_cluster,
    fits_the_trainer,
    made_from,
    no_cluster,
    note_capacity,
    old_pods_obstacle,
    predecessor_obstacle,
    preflight_obstacle,
    server_obstacle,
)
from harborrl_operator.suspend import await_release, is_released, suspended, take_back


def plan(job: HarborRLJob, observed: Observed, settings: Settings, now: datetime) -> Plan:
    """One pass over one job."""
    if observed.namespace is not None and is_terminating(observed.namespace):
        return _with_its_namespace(Draft(job, observed, now))
    job = without_unseen_queueing(job, observed, now)
    return keep_time(job, observed, _decide(Draft(job, observed, now), settings), now)


def _with_its_namespace(draft: Draft) -> Plan:
    """Its pods go first and the job goes last, which would look like losses; gone before them, it is none.

    Supervisors then save nothing on volumes that go as well, and the sweeper removes the sandboxes.
    """
    draft.delete_job()
    return draft.close(draft.job.status, requeue_after=LOOK_AGAIN_SECONDS)


def _decide(draft: Draft, settings: Settings) -> Plan:
    if draft.job.status.finished_at:
        return after_the_end(draft)
    hear_successor_later(draft)
    note_unseen_preemption(draft)
    note_progress(draft)
    end_old_pods(draft)
    if not draft.job.spec.suspend:
        take_back(draft)
    ended = verdict_of_driver(draft) or _out_of_time(draft)
    if ended is not None:
        return ended
    if draft.job.spec.suspend:
        return suspended(draft)
    return forgotten(draft) or _attempt(draft, settings)


def _attempt(draft: Draft, settings: Settings) -> Plan:
    if is_released(draft):
        return await_release(draft)
    if draft.cluster is not None:
        return _with_cluster(draft, settings)
    if draft.trainer.head_pod:
        return follow(draft)  # the cluster is gone and its head was there: a loss, once the last pod has ended
    admitted = _judge(draft.job, draft.observed, settings)
    if isinstance(admitted, Verdict):
        return _refused(draft, admitted)
    return _towards_a_cluster(draft, admitted)


def _out_of_time(draft: Draft) -> Plan | None:
    limit = draft.job.spec.active_deadline_seconds
    if limit is None or time_spent(draft.job, draft.observed, draft.now) <= limit:
        return None
    said = (
        f"The job was active for longer than activeDeadlineSeconds = {limit}, suspended, queued and refused time not"
        " counted. Raise it for a run of this size."
    )
    said = record_deadline(draft, said, Cause.DEADLINE_EXCEEDED)
    return draft.finish(Verdict(Reason.ACTIVE_DEADLINE_EXCEEDED, said), succeeded=False)


def _judge(job: HarborRLJob, observed: Observed, settings: Settings) -> ResolvedJob | Verdict:
    try:
        resolved = replace(
            resolve(job, settings, _other_run(job) or observed.resume_path),
            promised=promised(job, observed.surroundings.jobs, settings),
        )
        return first_objection(resolved, observed) or resolved
    except InvalidArgumentsError as error:
        return Verdict(Reason.INVALID_ARGUMENTS, f"{error}. Correct it and apply again.")


def _other_run(job: HarborRLJob) -> str | None:
    """The run that an earlier pass found under the name in `resumeFrom.job`."""
    wanted, known = job.spec.resume_from, job.status.resume_source
    return known.path if wanted and known and known.job == wanted.job else None


def _refused(draft: Draft, objection: Verdict) -> Plan:
    """A refused job holds nothing, and is judged again as soon as its spec or what it refers to changes."""
    draft.release()
    draft.fields.update(starting_since=None)
    draft.set(ConditionType.ADMITTED, "False", objection.reason, objection.message)
    for kind in (ConditionType.AGENT_SERVER_READY, ConditionType.TRAINER_READY):
        draft.set(kind, "False", Reason.NOT_STARTED, "The job is not admitted.")
    return draft.end(Phase.REFUSED, objection, requeue_after=LOOK_AGAIN_SECONDS)


def _with_cluster(draft: Draft, settings: Settings) -> Plan:
    """A running attempt keeps its configuration: an edit is judged and said, and takes effect with the next attempt.

    An edit of the agent server is carried out at once, beside the running one, unless the trainer could not use the new
    one; the network is the spec's always.
    """
    draft.delete_stale_clusters()
    if not draft.observed.progress_exists:
        draft.apply(config_maps.progress(draft.job))
    judged = _judge(draft.job, draft.observed, settings)
    if isinstance(judged, Verdict):
        said = f"This attempt runs as admitted, but the next one would be refused: {judged.reason}: {judged.message}"
        draft.set(ConditionType.ADMITTED, "True", Reason.ADMITTED, said)
        mend_rights(draft)
        note_server_as_it_is(draft)
        return follow(draft)
    is_apart = not fits_the_trainer(draft.cluster, judged)
    draft.set(ConditionType.ADMITTED, "True", Reason.ADMITTED, _what_waits(draft, judged, is_apart=is_apart))
    if is_apart:
        mend_rights(draft)
        isolate(draft, judged)
    else:
        _support(draft, judged)
    agent_server_obstacle(draft, judged, is_frozen=is_apart)
    return follow(draft)


def _what_waits(draft: Draft, job: ResolvedJob, *, is_apart: bool) -> str:
    if made_from(draft.cluster) == job.attempt_hash:
        return "All checks and the preflight passed."
    parts = "the job, its agent server included," if is_apart else "the trainer"
    return (
        f"What {parts} would be made from now (podOverrides, the chart's defaults) changed after this attempt began;"
        " the change takes effect with the next attempt or resume. Set spec.suspend: true and back to have it now."
    )


def _towards_a_cluster(draft: Draft, job: ResolvedJob) -> Plan:
    """Admitted by the checks: agent server, preflight, then the cluster; each waits for the one before."""
    draft.fields["adjustments"] = list(job.adjustments)
    if job.spec.resume_from and job.spec.resume_from.job and job.resume_path:
        draft.fields["resume_source"] = ResumeSource(job=job.spec.resume_from.job, path=job.resume_path)
    foreseen = tightness(job, Facts(), "", draft.observed.surroundings)
    if foreseen is not None:
        note_capacity(draft, foreseen)  # the preflight says the rest, and whether all is well
    draft.delete_stale_clusters()
    if is_backing_off(draft):
        return back_off(draft)
    _open(draft)
    for phase, obstacle_of in _STEPS:
        obstacle = obstacle_of(draft, job)
        if obstacle is None:
            continue
        late = late_start(draft, obstacle)
        if late is not None:
            return late
        if phase is not Phase.STARTING_TRAINER:
            draft.set(ConditionType.TRAINER_READY, "False", Reason.NOT_STARTED, "Waits for agent server and preflight.")
        return draft.end(draft.phase or phase, obstacle, requeue_after=draft.look_again or LOOK_AGAIN_SECONDS)
    return late_start(draft, no_cluster(draft)) or create_cluster(draft, job)


def _lay_ground(draft: Draft, job: ResolvedJob) -> None:
    _support(draft, job)
    draft.apply(config_maps.job_config(job, draft.attempt))


_STEPS: tuple[tuple[Phase, Callable[[Draft, ResolvedJob], Verdict | None]], ...] = (
    (Phase.STARTING_AGENT_SERVER, predecessor_obstacle),
    (Phase.REFUSED, standing_refusal),
    (Phase.STARTING_AGENT_SERVER, _lay_ground),
    (Phase.STARTING_AGENT_SERVER, server_obstacle),
    (Phase.PREFLIGHT, preflight_obstacle),
    (Phase.STARTING_TRAINER, old_pods_obstacle),
)


def _open(draft: Draft) -> None:
    draft.fields["retry_at"] = None
    if draft.value("started_at") is None:
        draft.fields["started_at"] = draft.text_now
    draft.open_attempt()
    draft.start_clock()


def _support(draft: Draft, job: ResolvedJob) -> None:
    """Rights, names and the agent server: applied in every pass, so that what somebody breaks is repaired."""
    draft.apply(*rbac.accounts_and_bindings(job), services.trainer(job, draft.attempt))
    isolate(draft, job)
    draft.apply(*disruption.budgets(job))
    if not job.spec.agent_server.url:
        roll(draft, job)
