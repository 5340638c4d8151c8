"""One pass's decision while it is being made: what to apply and delete, and the status to write."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from harborrl_operator.clock import to_text
from harborrl_operator.conditions import Conditions, Truth, Verdict
from harborrl_operator.constants import KIND, ConditionType, Phase, Reason
from harborrl_operator.models import HarborRLJob, JobStatus
from harborrl_operator.models.status import AttemptStatus, PreflightStatus, TrainerStatus
from harborrl_operator.observed import Object, Observed, is_terminating, name_of
from harborrl_operator.progress import Progress, read_progress

_JUDGED_OR_OLD = (ConditionType.AGENT_SERVER_READY,)
"""Says what was seen at its generation: a pass that did not look must not vouch for it."""


@dataclass(frozen=True)
class Reference:
    """An object to delete; the uid guards against one of the same name that came later."""

    kind: str
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True)
class Plan:
    """What one pass decided."""

    apply: tuple[dict[str, Any], ...]
    delete: tuple[Reference, ...]
    status: JobStatus
    requeue_after: float | None
    """Seconds; None: the next event is soon enough."""


class Draft:
    """Collects the plan of one pass; every method only changes the draft."""

    def __init__(self, job: HarborRLJob, observed: Observed, now: datetime) -> None:
        self.job, self.observed, self.now = job, observed, now
        self.text_now = to_text(now)
        self.report = read_progress(observed.progress, job.uid)
        """Of this run, whichever attempt it is of; read once, for all that a pass asks of it."""
        # A fault of ours is over with the pass that comes to its end.
        settled = (one for one in job.status.conditions if one.reason != Reason.OPERATOR_ERROR)
        self.conditions = Conditions(settled, job.generation, self.text_now)
        self.fields: dict[str, Any] = {"observed_generation": job.generation, "run_path": job.names.run_path}
        self._apply: list[dict[str, Any]] = []
        self._delete: dict[tuple[str, str], Reference] = {}
        self.phase: Phase | None = None
        """Set by a step that knows better than its place in the order."""
        self.look_again: float | None = None
        """Set by a step that knows when its obstacle may be gone."""
        if job.status.observed_generation != job.generation and job.status.starting_since:
            # A corrected spec gets the whole start deadline.
            self.fields["starting_since"] = self.text_now

    def value(self, field: str) -> Any:
        """The field as this pass leaves it."""
        return self.fields.get(field, getattr(self.job.status, field))

    @property
    def attempt(self) -> int:
        return int(self.value("attempt"))

    @property
    def progress(self) -> Progress | None:
        """The report of the current attempt, None before its supervisor wrote one that can be read."""
        report = self.report
        return report if isinstance(report, Progress) and report.attempt == self.attempt else None

    @property
    def trainer(self) -> TrainerStatus:
        return self.value("trainer") or TrainerStatus()

    @property
    def preflight(self) -> PreflightStatus:
        return self.value("preflight") or PreflightStatus()

    @property
    def cluster(self) -> Object | None:
        """The RayCluster of the current attempt."""
        return self.observed.ray_clusters.get(self.job.names.ray_cluster(self.attempt))

    @property
    def cluster_uid(self) -> str:
        """Of the current attempt's RayCluster, empty without one."""
        return str(self.cluster["metadata"]["uid"]) if self.cluster is not None else ""

    def update_trainer(self, **changes: Any) -> None:
        self.fields["trainer"] = self.trainer.model_copy(update=changes)

    def set(self, kind: ConditionType, status: Truth, reason: Reason, message: str = "") -> None:
        self.conditions.set(kind, status, reason, message)

    def apply(self, *objects: dict[str, Any]) -> None:
        self._apply.extend(objects)

    def delete(self, kind: str, things: Iterable[Object | None]) -> None:
        for thing in things:
            if thing is not None and not is_terminating(thing):
                meta = thing["metadata"]
                reference = Reference(kind, meta["namespace"], meta["name"], meta["uid"])
                self._delete[kind, reference.name] = reference

    def delete_stale_clusters(self) -> None:
        current = self.job.names.ray_cluster(self.attempt)
        self.delete("RayCluster", (c for name, c in self.observed.ray_clusters.items() if name != current))

    def forget_cluster(self) -> None:
        """What was known of a cluster that is no longer ours; the next one begins with nothing."""
        self.fields["trainer"] = TrainerStatus()

    def release(self, *, keep: str | None = None) -> None:
        """Give back everything that costs: the status, the volumes and the RayCluster `keep` stay."""
        self.delete("RayCluster", (c for name, c in self.observed.ray_clusters.items() if name != keep))
        self.delete("Pod", [self.observed.preflight_pod])
        self.delete("ConfigMap", [self.observed.request])
        self.delete("Deployment", self.observed.agent_servers.values())

    def delete_job(self) -> None:
        job = self.job
        self._delete[KIND, job.name] = Reference(KIND, job.namespace, job.name, job.uid)

    def open_attempt(self) -> None:
        """Make sure that the current attempt has its record."""
        attempts: list[AttemptStatus] = list(self.value("attempts"))
        if not attempts or attempts[-1].number != self.attempt:
            self.fields["attempts"] = [*attempts, AttemptStatus(number=self.attempt, started_at=self.text_now)]

    def change_attempt(self, **changes: Any) -> None:
        attempts: list[AttemptStatus] = list(self.value("attempts"))
        if attempts:
            self.fields["attempts"] = [*attempts[:-1], attempts[-1].model_copy(update=changes)]

    def start_clock(self) -> None:
        if self.value("starting_since") is None:
            self.fields["starting_since"] = self.text_now

    def between(self, verdict: Verdict, progress: str, requeue_after: float) -> Plan:
        """Close a pass in which no driver runs and another one will: `progress` says what lies in between."""
        self.set(ConditionType.TRAINER_READY, "False", verdict.reason, verdict.message)
        self.set(ConditionType.PROGRESSING, "False", Reason.NOT_RUNNING, progress)
        self.set(ConditionType.STALLED, "False", Reason.NOT_RUNNING)
        return self.end(Phase.STARTING_TRAINER, verdict, requeue_after)

    def end(self, phase: Phase, verdict: Verdict, requeue_after: float | None) -> Plan:
        """Close the pass: `verdict` is what `kubectl get` shows."""
        self._fill_conditions()
        if self.look_again is not None:
            requeue_after = self.look_again if requeue_after is None else min(requeue_after, self.look_again)
        status = self.job.status.model_copy(
            update={
                **self.fields,
                "phase": phase,
                "reason": verdict.reason.value,
                "message": verdict.message[:256],
                "conditions": self.conditions.listed(),
            }
        )
        return Plan(tuple(self._apply), tuple(self._delete.values()), status, requeue_after)

    def close(self, status: JobStatus, requeue_after: float | None) -> Plan:
        """Close the pass with a status of the caller's."""
        return Plan(tuple(self._apply), tuple(self._delete.values()), status, requeue_after)

    def _fill_conditions(self) -> None:
        """All types are present from the first pass on, so that `kubectl wait` and columns find them."""
        starting: dict[ConditionType, tuple[Truth, Reason]] = {
            ConditionType.ADMITTED: ("Unknown", Reason.AWAITING_PREFLIGHT),
            ConditionType.AGENT_SERVER_READY: ("False", Reason.NOT_STARTED),
            ConditionType.TRAINER_READY: ("False", Reason.NOT_STARTED),
            ConditionType.PROGRESSING: ("False", Reason.NOT_RUNNING),
            ConditionType.CAPACITY_TIGHT: ("False", Reason.CAPACITY_SUFFICIENT),
            ConditionType.STALLED: ("False", Reason.NOT_RUNNING),
            ConditionType.RESUMED: ("Unknown", Reason.NOT_RUNNING),
            ConditionType.LOW_SPACE: ("Unknown", Reason.NOT_RUNNING),
            ConditionType.SUSPENDED: ("False", Reason.NOT_SUSPENDED),
            ConditionType.FINISHED: ("False", Reason.NOT_FINISHED),
            ConditionType.SUCCEEDED: ("False", Reason.NOT_SUCCEEDED),
            ConditionType.FAILED: ("False", Reason.NOT_FAILED),
        }
        for kind, (status, reason) in starting.items():
            present = self.conditions.get(kind)
            if present is None:
                self.set(kind, status, reason)
            elif present.observed_generation != self.job.generation and kind not in _JUDGED_OR_OLD:
                self.conditions.restamp(kind)  # what is known of it holds for this generation too

    def finish(self, verdict: Verdict, *, succeeded: bool, keep_cluster: bool = False) -> Plan:
        """The end, for good: release, and say in every condition how it ended."""
        self._apply.clear()  # what an earlier step of this pass wanted, the end does not
        kept = self.cluster if keep_cluster else None
        self.release(keep=name_of(kept) if kept else None)
        self.update_trainer(kept=kept is not None)
        word = "Succeeded" if succeeded else "Failed"
        self.fields.update(finished_at=self.text_now, retry_at=None, starting_since=None, suspension=None)
        attempts: list[AttemptStatus] = self.value("attempts")
        if attempts and not attempts[-1].finished_at:
            self.change_attempt(finished_at=self.text_now, outcome=word, failure_class=None, cause=None, message="")
        self.set(ConditionType.FINISHED, "True", verdict.reason, verdict.message)
        kind = ConditionType.SUCCEEDED if succeeded else ConditionType.FAILED
        self.set(kind, "True", verdict.reason, verdict.message)
        admitted = self.conditions.get(ConditionType.ADMITTED)
        if admitted is None or admitted.status == "Unknown":
            self.set(ConditionType.ADMITTED, "False", verdict.reason, "The job ended before it was admitted.")
        for over in (ConditionType.AGENT_SERVER_READY, ConditionType.TRAINER_READY):
            self.set(over, "False", Reason.RELEASED, "Released: the job has finished.")
        self.set(ConditionType.PROGRESSING, "False", verdict.reason, "The job has finished.")
        self.set(ConditionType.STALLED, "False", Reason.NOT_RUNNING)
        self.set(ConditionType.SUSPENDED, "False", Reason.NOT_SUSPENDED, "The job has finished.")
        return self.end(Phase.SUCCEEDED if succeeded else Phase.FAILED, verdict, requeue_after=1.0)
