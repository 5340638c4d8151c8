"""One pass over one job: observe, plan, apply, write status. The only place where pure code meets the API server.

A status is written before what it decided is deleted: evidence is never destroyed by a decision that can be lost.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

from harborrl_operator import metrics
from harborrl_operator.announcer import Announcer
from harborrl_operator.applied import Applied
from harborrl_operator.clock import to_text
from harborrl_operator.cluster import Cluster
from harborrl_operator.constants import API_VERSION, KIND
from harborrl_operator.draft import Plan
from harborrl_operator.errors import ClusterError, JobGoneError, NotLeadingError
from harborrl_operator.faults import with_failures, with_fault
from harborrl_operator.fitting import fit_ray_cluster
from harborrl_operator.missing_rights import is_broken
from harborrl_operator.models import HarborRLJob, InvalidJobError, JobStatus, Settings, parse_job
from harborrl_operator.observe import observe
from harborrl_operator.observed import Object, Observed, is_terminating, name_of
from harborrl_operator.ownership import refuse_strangers
from harborrl_operator.plan import plan
from harborrl_operator.transitions import transitions
from harborrl_operator.unreadable import unreadable_status

logger = logging.getLogger(__name__)

RETRY_SECONDS = 10.0
"""After a refused write: soon, because nothing else will wake us."""

CONFLICT_SECONDS = 0.5
"""After a status that was decided on what is no longer so."""

CREATED_ONCE = ("Pod", "RayCluster")
"""Kinds that are made when there is none and then left alone. An apply would change one that another operator, or a
pass whose last answer was lost, has made meanwhile; Kueue's node selectors in a RayCluster would be gone."""


class Reconciler:
    """Holds what every pass needs; time is a function, so that tests own it."""

    def __init__(self, cluster: Cluster, settings: Settings, now: Callable[[], datetime]) -> None:
        self._cluster, self._settings, self._now = cluster, settings, now
        self._announcer = Announcer(cluster, now)
        self.applied = Applied()

    async def reconcile(self, namespace: str, name: str) -> float | None:
        """Seconds after which to look again, None when only an event can change anything.

        Raises ClusterError when the API server does not answer; the queue tries again with back-off. JobGoneError when
        the job was deleted meanwhile.
        """
        raw = await self._cluster.get(KIND, namespace, name)
        if raw is None or "deletionTimestamp" in raw["metadata"]:
            return None  # owner references do the rest, with us or without us
        try:
            job = parse_job(raw)
        except InvalidJobError as error:
            await self._write_invalid(raw, str(error))
            return None
        try:
            return await self._judge(job, self._now())
        except (ClusterError, NotLeadingError):
            raise  # said where it concerns somebody; the queue tries again
        except Exception as error:
            await self._write(job, with_fault(job.status, error, job.generation, self._now()))
            raise

    async def _judge(self, job: HarborRLJob, now: datetime) -> float | None:
        try:
            decided = await self._decide(job, now)
            written = job
            if decided.delete and _must_be_remembered(job.status, decided.status):
                written = await self._write(job, decided.status)
            status, failures = await self._carry_out(decided, job, now)
            await self._write(written, status)
        except ClusterError as error:
            if error.is_conflict and error.action.split()[1] == KIND:
                return CONFLICT_SECONDS
            raise
        return RETRY_SECONDS if failures else decided.requeue_after

    async def _decide(self, job: HarborRLJob, now: datetime) -> Plan:
        """A refused read is said in the status before it is raised."""
        try:
            observed = await observe(self._cluster, job, self._settings, now)
            if not observed.progress_exists:
                self.applied.drop("ConfigMap", job.namespace, job.names.progress)
        except ClusterError as error:
            if error.is_refusal:
                await self._write(job, with_failures(job.status, job.status, [error], now))
            raise
        decided = plan(job, observed, self._settings, now)
        self._forget_absent(job, decided, observed)
        return decided

    def _forget_absent(self, job: HarborRLJob, decided: Plan, observed: Observed) -> None:
        """Of what a pass has looked at: no watch says that rights are gone, and one may miss a deletion."""
        there = {name_of(thing) for thing in (*observed.agent_servers.values(), *observed.network_policies)}
        for thing in decided.apply:
            meta = thing["metadata"]
            is_absent = thing["kind"] in ("Deployment", "NetworkPolicy") and meta["name"] not in there
            if is_absent or (meta["namespace"] == job.namespace and is_broken(thing, observed)):
                self.applied.drop(thing["kind"], meta["namespace"], meta["name"])

    async def _carry_out(self, decided: Plan, job: HarborRLJob, now: datetime) -> tuple[JobStatus, list[ClusterError]]:
        """Deletes before the rest, so that a quota has room for what follows; every refusal reaches a condition."""
        failures: list[ClusterError] = []
        status = decided.status
        for gone in decided.delete:
            try:
                self.applied.drop(gone.kind, gone.namespace, gone.name)
                await self._cluster.delete(gone.kind, gone.namespace, gone.name, gone.uid)
            except ClusterError as error:
                failures.append(error)
        for thing in decided.apply:
            if failures and thing["kind"] == "RayCluster":
                break  # it mounts what could not be applied
            try:
                if thing["kind"] == "RayCluster":
                    status = await self._bring_ray_cluster(thing, job, status)
                else:
                    await self._bring(thing, job)
            except ClusterError as error:
                failures.append(error)
        return with_failures(job.status, status, failures, now), failures

    async def _bring_ray_cluster(self, thing: dict[str, Any], job: HarborRLJob, status: JobStatus) -> JobStatus:
        """The status with what had to be left out."""
        fitted, omitted = await fit_ray_cluster(self._cluster, thing)
        await self._bring(fitted, job)
        return status.model_copy(update={"adjustments": [*status.adjustments, *omitted]})

    async def _bring(self, thing: dict[str, Any], job: HarborRLJob) -> None:
        if thing["kind"] not in CREATED_ONCE:
            if not self.applied.holds(thing, self._now()):
                if not self.applied.knows(thing):
                    await refuse_strangers(self._cluster, thing)
                self.applied.note(thing, await self._cluster.apply(thing), self._now())
            return
        try:
            await self._cluster.create(thing)
        except ClusterError as error:
            if not error.is_conflict:
                raise
            found = await self._cluster.get(thing["kind"], job.namespace, thing["metadata"]["name"])
            if found is not None and not _is_of(found, job):
                raise

    async def _write(self, job: HarborRLJob, status: JobStatus) -> HarborRLJob:
        """The job as it then is. Raises ClusterError, a conflict, when it is no longer as it was read."""
        if status == job.status:
            return job
        identity = {"name": job.name, "namespace": job.namespace, "uid": job.uid, "resourceVersion": job.version}
        stored = await self._store(
            {
                "apiVersion": API_VERSION,
                "kind": KIND,
                "metadata": {key: value for key, value in identity.items() if value},
                "status": status.model_dump(by_alias=True, exclude_none=True, mode="json"),
            }
        )
        metrics.count_change(job.status, status)
        for transition in transitions(job.status, status):
            await self._announcer.say(job, transition)
        return replace(job, status=status, version=stored["metadata"].get("resourceVersion", ""))

    async def _write_invalid(self, raw: dict[str, Any], message: str) -> None:
        """A spec that this version cannot read: say so and leave what runs alone."""
        meta, before = raw["metadata"], raw.get("status") or {}
        status = unreadable_status(before, meta.get("generation", 0), message, to_text(self._now()))
        if status == before:
            return
        identity = {"name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"]}
        body = {"apiVersion": API_VERSION, "kind": KIND, "metadata": identity, "status": status}
        await self._store(body)

    async def _store(self, job: dict[str, Any]) -> dict[str, Any]:
        try:
            return await self._cluster.apply(job, subresource="status")
        except ClusterError as error:
            if error.is_absent:
                raise JobGoneError(error.action, error.status, error.message) from error
            raise


def _must_be_remembered(before: JobStatus, after: JobStatus) -> bool:
    """Whether a pass that finds what this one deletes gone could not decide the same again.

    What is shown to people does not count: a refused deletion changes it in every pass.
    """
    shown = {"conditions": before.conditions, "reason": before.reason, "message": before.message}
    return after.model_copy(update=shown) != before


def _is_of(thing: Object, job: HarborRLJob) -> bool:
    owners = thing["metadata"].get("ownerReferences", ())
    return any(owner["uid"] == job.uid for owner in owners) and not is_terminating(thing)
