"""One pass over one job: observe, plan, apply, write status. The only place where pure code meets the API server."""

import logging
from collections.abc import Callable
from datetime import datetime
from typing import Any

from harborrl_operator.clock import to_text
from harborrl_operator.cluster import Cluster
from harborrl_operator.conditions import Conditions
from harborrl_operator.constants import API_VERSION, KIND, ConditionType, Reason
from harborrl_operator.draft import Plan
from harborrl_operator.errors import ClusterError, UnsupportedFieldError
from harborrl_operator.fitting import fit_ray_cluster
from harborrl_operator.models import HarborRLJob, InvalidJobError, JobStatus, Settings, parse_job
from harborrl_operator.observe import observe
from harborrl_operator.plan import plan
from harborrl_operator.transitions import Transition, transitions
from harborrl_operator.unreadable import unreadable_status

logger = logging.getLogger(__name__)

RETRY_SECONDS = 10.0
"""After a refused write: soon, because nothing else will wake us."""


class Reconciler:
    """Holds what every pass needs; time is a function, so that tests own it."""

    def __init__(self, cluster: Cluster, settings: Settings, now: Callable[[], datetime]) -> None:
        self._cluster, self._settings, self._now = cluster, settings, now

    async def reconcile(self, namespace: str, name: str) -> float | None:
        """Seconds after which to look again, None when only an event can change anything.

        Raises ClusterError when the API server does not answer; the queue tries again with back-off.
        """
        raw = await self._cluster.get(KIND, namespace, name)
        if raw is None or "deletionTimestamp" in raw["metadata"]:
            return None  # owner references do the rest, with us or without us
        try:
            job = parse_job(raw)
        except InvalidJobError as error:
            await self._write_invalid(raw, str(error))
            return None
        now = self._now()
        try:
            observed = await observe(self._cluster, job, self._settings, now)
        except ClusterError as error:
            if error.is_refusal:
                await self._write(job, with_failures(job.status, job.status, [error], now))
            raise
        decided = plan(job, observed, self._settings, now)
        status, failures = await self._carry_out(decided, job, now)
        await self._write(job, status)
        return RETRY_SECONDS if failures else decided.requeue_after

    async def _carry_out(self, decided: Plan, job: HarborRLJob, now: datetime) -> tuple[JobStatus, list[ClusterError]]:
        """Deletes first, so that a quota has room for what follows; every refusal reaches a condition."""
        failures: list[ClusterError] = []
        status = decided.status
        for gone in decided.delete:
            try:
                await self._cluster.delete(gone.kind, gone.namespace, gone.name, gone.uid)
            except ClusterError as error:
                failures.append(error)
        for thing in decided.apply:
            try:
                if thing["kind"] != "RayCluster":
                    await self._cluster.apply(thing)
                elif not failures:  # it mounts what could not be applied
                    status = await self._make_ray_cluster(thing, status)
            except ClusterError as error:
                failures.append(error)
        return with_failures(job.status, status, failures, now), failures

    async def _make_ray_cluster(self, thing: dict[str, Any], status: JobStatus) -> JobStatus:
        """The status with what had to be left out."""
        fitted, omitted = await fit_ray_cluster(self._cluster, thing)
        await self._cluster.apply_strictly(fitted)
        return status.model_copy(update={"adjustments": [*status.adjustments, *omitted]})

    async def _write(self, job: HarborRLJob, status: JobStatus) -> None:
        if status == job.status:
            return
        await self._cluster.apply(
            {
                "apiVersion": API_VERSION,
                "kind": KIND,
                # The uid refuses the write when the job was deleted and applied again meanwhile.
                "metadata": {"name": job.name, "namespace": job.namespace, "uid": job.uid},
                "status": status.model_dump(by_alias=True, exclude_none=True, mode="json"),
            },
            subresource="status",
        )
        for transition in transitions(job.status, status):
            await self._announce(job, transition)

    async def _announce(self, job: HarborRLJob, transition: Transition) -> None:
        """An event is a courtesy: status has been written, so a refused event is logged and not retried."""
        now = to_text(self._now())
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{job.name}.", "namespace": job.namespace},
            "involvedObject": {
                "apiVersion": API_VERSION,
                "kind": KIND,
                "name": job.name,
                "namespace": job.namespace,
                "uid": job.uid,
            },
            "type": transition.kind,
            "reason": transition.reason,
            "message": transition.message,
            "source": {"component": "harborrl-operator"},
            "reportingComponent": "harborrl-operator",
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            await self._cluster.create(event)
        except ClusterError as error:
            logger.warning("event for %s/%s was refused: %s", job.namespace, job.name, error)

    async def _write_invalid(self, raw: dict[str, Any], message: str) -> None:
        """A spec that this version cannot read: say so and leave what runs alone."""
        meta, before = raw["metadata"], raw.get("status") or {}
        status = unreadable_status(before, meta.get("generation", 0), message, to_text(self._now()))
        if status == before:
            return
        identity = {"name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"]}
        body = {"apiVersion": API_VERSION, "kind": KIND, "metadata": identity, "status": status}
        await self._cluster.apply(body, subresource="status")


def with_failures(before: JobStatus, after: JobStatus, failures: list[ClusterError], now: datetime) -> JobStatus:
    """`after` with what the API server refused, in the condition of the part that it concerns.

    Transition times go by `before`: a refusal that lasts must not look new in every pass, or each pass would write.
    """
    if not failures or after.finished_at:
        return after
    concerned = {_concerned(error) for error in failures}
    carried = [condition for condition in before.conditions if condition.type in concerned]
    settled = [condition for condition in after.conditions if condition.type not in concerned]
    conditions = Conditions([*carried, *settled], after.observed_generation, to_text(now))
    for error in reversed(failures):
        message = f"The API server refused to {error}. It is tried again; correct what it names."
        if isinstance(error, UnsupportedFieldError):
            message = f"Not sent: {error}. It is tried again."
        if error.action == "list RayCluster" and error.is_absent:
            message += " Is KubeRay installed?"
        conditions.set(_concerned(error), "False", _reason(error), message)
    first = f"The API server refused to {failures[0]}."
    return after.model_copy(
        update={"conditions": conditions.listed(), "reason": _reason(failures[0]).value, "message": first[:256]}
    )


def _reason(error: ClusterError) -> Reason:
    return Reason.FIELD_NOT_SUPPORTED if isinstance(error, UnsupportedFieldError) else Reason.APPLY_FAILED


_ADMISSION = ("ConfigMap", "Pod", "PersistentVolumeClaim", "Namespace")
"""Kinds on which the preflight and the checks depend."""


def _concerned(error: ClusterError) -> ConditionType:
    kind = error.action.split()[1]
    if kind == "RayCluster":
        return ConditionType.TRAINER_READY
    return ConditionType.ADMITTED if kind in _ADMISSION else ConditionType.AGENT_SERVER_READY
