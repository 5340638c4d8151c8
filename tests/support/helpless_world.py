"""A world that does what the operator asks and nothing more: it is stuck somewhere, and nobody comes to help.

`Stuck` says where. Pods and clusters come and go as the operator makes and deletes them; what does not work goes on not
working, and reports stay as they were written.
"""

import json
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from harborrl_operator.clock import to_text
from harborrl_operator.draft import Plan, Reference
from harborrl_operator.errors import ClusterError
from harborrl_operator.faults import with_failures
from harborrl_operator.models import HarborRLJob
from harborrl_operator.observed import Observed
from harborrl_operator.plan import plan
from support import hrl

FINDING = {"check": "c", "severity": "refuse", "message": "m"}


@dataclass(frozen=True)
class Stuck:
    """Where each part of the world stands."""

    server: bool = True
    preflight: str = "passes"
    """`pending`, `hangs`, `crashes`, `passes`, or the reason of a refusal."""
    cluster: str = "ready"
    """`refused` by the API server, `held` by a queue, `silent` (no pods), `pending`, `headless`, `maimed`, `ready`."""
    report: str | None = "RUNNING"
    """State of the driver; None: there is no report; else the text itself."""
    failure: str | None = None
    wrong: bool = False
    """The report holds a field of another type."""
    confirms: bool = True
    """Whether nodes confirm that a pod has ended."""
    suspend: bool = False


@dataclass
class HelplessWorld:
    stuck: Stuck
    queue: bool = False
    now: datetime = hrl.NOW
    server: bool = False
    preflight: tuple[int, datetime] | None = None
    """Attempt and when it was made."""
    cluster: int | None = None
    """Attempt."""
    life: int = 0
    """Head pods that the attempt has had."""
    born: datetime = hrl.NOW
    """Of the current pods."""
    ending: tuple[dict[str, Any], ...] = ()
    """Pods that no node confirms to be over."""
    reported: tuple[int, int, datetime] | None = None
    """Attempt and incarnation that wrote last, and when they began."""

    def step(self, job: HarborRLJob, seconds: float) -> HarborRLJob:
        """One pass, carried out; the job as it is then."""
        self.now += timedelta(seconds=seconds)
        job = hrl.then(job, _as_it_is(job), suspend=self.stuck.suspend)
        decided = plan(job, self.see(job), hrl.SETTINGS, self.now)
        failures = self._obey(decided)
        status = with_failures(job.status, decided.status, failures, self.now)
        return HarborRLJob(job.namespace, job.name, job.uid, job.generation, job.spec, status)

    def see(self, job: HarborRLJob) -> Observed:
        pods = self._pods()
        if pods and self.cluster is not None and self.stuck.report is not None and self.stuck.cluster != "pending":
            self.reported = (self.cluster, self.life, self.born)
        return hrl.world(
            deployment=hrl.deployment(job, ready=self.stuck.server) if self.server else None,
            preflight_pod=self._preflight(job),
            ray_clusters={f"quickstart-a{self.cluster}": self._cluster(job)} if self.cluster is not None else {},
            trainer_pods=(*pods, *self.ending),
            progress=self._report(),
            progress_exists=True,
        )

    def _ago(self, moment: datetime) -> float:
        """As the builders count, backwards from noon."""
        return (hrl.NOW - moment).total_seconds()

    def _preflight(self, job: HarborRLJob) -> dict[str, Any] | None:
        if self.preflight is None:
            return None
        attempt, made = self.preflight
        uid = f"pf-{to_text(made)}"
        kind = self.stuck.preflight
        if kind == "pending":
            waiting = hrl.preflight_pod(job, attempt=attempt, uid=uid)
            waiting["status"]["phase"] = "Pending"
            return waiting
        if kind == "hangs" and self.now - made < timedelta(seconds=600):
            return hrl.preflight_pod(job, attempt=attempt, uid=uid)
        refusal = json.dumps({"schemaVersion": 1, "ok": False, "findings": [FINDING | {"reason": kind}]})
        ends = {"passes": (0, hrl.PASSED), "hangs": (137, ""), "crashes": (1, "boom")}
        code, said = ends.get(kind, (1, refusal))
        ended = self._ago(made)
        return hrl.preflight_pod(job, attempt=attempt, uid=uid, exit_code=code, message=said, ended=ended)

    def _cluster(self, job: HarborRLJob) -> dict[str, Any]:
        assert self.cluster is not None
        held = self.stuck.cluster == "held"
        cluster = hrl.ray_cluster(job, self.cluster, suspend=held if self.queue else None, age=self._ago(self.born))
        cluster["metadata"]["uid"] = f"rc-{self.cluster}-{to_text(self.born)}"
        cluster["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "h200"} if self.queue else {}
        return cluster

    def _pods(self) -> tuple[dict[str, Any], ...]:
        kind = self.stuck.cluster
        if self.cluster is None or kind in ("silent", "held"):
            return ()
        phase = "Pending" if kind == "pending" else "Running"
        roles = ("worker",) if kind == "headless" else ("head",) if kind == "maimed" else ("head", "worker")
        return tuple(self._pod(role, phase) for role in roles)

    def _pod(self, role: str, phase: str) -> dict[str, Any]:
        assert self.cluster is not None
        pod = hrl.trainer_pod(role, attempt=self.cluster, phase=phase, ready=phase == "Running")
        name = f"quickstart-a{self.cluster}-{role}-{self.life}"
        pod["metadata"].update(name=name, uid=f"uid-{name}", creationTimestamp=to_text(self.born))
        return pod

    def _report(self) -> str | None:
        state = self.stuck.report
        if self.reported is None or state is None:
            return None
        if not state.isalpha():
            return state
        attempt, life, since = self.reported
        changes: dict[str, Any] = {"driver.startedAt": to_text(since), "observedAt": to_text(since)}
        if self.stuck.wrong:
            changes["rollout.collected"] = "many"
        return hrl.progress(state, changes, attempt=attempt, incarnation=life, failure=self.stuck.failure, message="m")

    def _obey(self, decided: Plan) -> list[ClusterError]:
        for gone in decided.delete:
            self._delete(gone)
        failures = []
        for made in decided.apply:
            if made["kind"] == "Deployment":
                self.server = True
            elif made["kind"] == "Pod":
                self.preflight = (decided.status.attempt, self.now)
            elif made["kind"] == "RayCluster" and self.stuck.cluster == "refused":
                failures.append(ClusterError("create RayCluster quickstart", 422, "unsupported"))
            elif made["kind"] == "RayCluster":
                self._make_cluster(decided.status.attempt)
        return failures

    def _delete(self, gone: Reference) -> None:
        if gone.kind == "Deployment":
            self.server = False
        elif gone.name.endswith("preflight"):
            self.preflight = None
        elif gone.kind == "RayCluster":
            self._end_pods()
            self.cluster = None
        elif gone.kind == "Pod" and self.cluster is not None and self.born < self.now:
            self._end_pods()
            self.life, self.born = self.life + 1, self.now

    def _make_cluster(self, attempt: int) -> None:
        wrote = self.reported
        self.life = wrote[1] + 1 if wrote is not None and wrote[0] == attempt else 1
        self.cluster, self.born = attempt, self.now

    def _end_pods(self) -> None:
        if self.stuck.confirms:
            return
        for pod in self._pods():
            pod["metadata"]["deletionTimestamp"] = to_text(self.now + timedelta(seconds=30))
            self.ending = (*self.ending, pod)

    def becomes(self, stuck: Stuck) -> None:
        """Something heals, something else breaks."""
        self.stuck = replace(stuck)
        if stuck.confirms:
            self.ending = ()


def _as_it_is(job: HarborRLJob) -> Plan:
    return Plan((), (), job.status, None)
