"""A queued trainer whose KubeRay, kubelet, Kueue and supervisors are played on an API server that loses writes.

The API server's clock differs from the operator's; each object has its uid. What really failed is counted here.
"""

import itertools
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, override

from harborrl_operator.clock import to_text
from harborrl_operator.errors import ClusterError
from harborrl_operator.reconcile import Reconciler
from support import hrl
from support.memory_cluster import MemoryCluster

NAMESPACE, NAME = "research", "quickstart"
PODS = {"harborrl.dev/job": NAME, "harborrl.dev/job-uid": hrl.UID, "harborrl.dev/role": "trainer"}
LOST, REFUSED, KEPT = "lost", "refused", "kept"
"""Of a write: done and not answered; not done; done."""


class Gang(MemoryCluster):
    """Two pods; `skew` seconds are added to the API server's clock."""

    def __init__(self, skew: float, *, same_name: bool) -> None:
        spec = {**hrl.QUICKSTART_SPEC, "queueName": "h200", "retries": {"maxAttempts": 99}}
        super().__init__(spec)
        self._skew, self._same_name = skew, same_name
        self._number = itertools.count(1)
        self.seconds = 0.0
        self.fates: dict[str, str] = {}
        """What becomes of statuses and deletions in this pass: `status` and `delete`."""
        self.failures = 0
        self.unseen = 0
        """Failures since the last pass that came to its end."""
        self.born: dict[str, int] = {}
        """Failures before each pod, by its uid."""
        self.wrongly_deleted: list[str] = []
        self.incarnations: dict[str, int] = {}
        """Claimed by the heads, by uid; in `ended` those whose driver has ended."""
        self.ended: set[str] = set()
        self.admitted = hrl.ago(0)

    @override
    async def apply(self, thing: Mapping[str, Any], *, subresource: str = "") -> dict[str, Any]:
        if subresource != "status":
            return await super().apply(thing, subresource=subresource)
        fate = self.fates.get("status", KEPT)
        if fate == REFUSED:
            raise ClusterError(f"apply HarborRLJob {NAME}", 409, "the object has been modified")
        stored = await super().apply(thing, subresource=subresource)
        if fate == LOST:
            raise ClusterError(f"apply HarborRLJob {NAME}", 0, "no answer")
        return stored

    @override
    async def create(self, thing: Mapping[str, Any]) -> dict[str, Any]:
        if thing["kind"] == "Event":
            return dict(thing)
        meta = {**thing["metadata"], "uid": f"u{next(self._number)}", "creationTimestamp": self._stamp()}
        if thing["kind"] == "RayCluster":
            self.admitted = self._stamp()
        return await super().create({**thing, "metadata": meta})

    @override
    async def delete(self, kind: str, namespace: str, name: str, uid: str) -> None:
        fate = self.fates.get("delete", KEPT)
        if fate == REFUSED:
            raise ClusterError(f"delete {kind} {name}", 403, "denied by a webhook")
        found = self.objects.get((kind, namespace, name))
        if found is None or found["metadata"]["uid"] != uid:
            raise ClusterError(f"delete {kind} {name}", 409, "the uid differs")
        if uid in self.born:
            if self.born[uid] == self.failures and not self.unseen:
                self.wrongly_deleted.append(name)
            found["metadata"]["deletionTimestamp"] = self._stamp()
        else:
            del self.objects[kind, namespace, name]
        if kind == "RayCluster":
            for pod in self.pods():
                pod["metadata"].setdefault("deletionTimestamp", self._stamp())
        if fate == LOST:
            raise ClusterError(f"delete {kind} {name}", 0, "no answer")

    async def look(self, status: str = KEPT, delete: str = KEPT) -> None:
        """One pass of a fresh operator."""
        self.fates = {"status": status, "delete": delete}
        now = hrl.NOW + timedelta(seconds=self.seconds)
        try:
            await Reconciler(self, hrl.SETTINGS, lambda: now).reconcile(NAMESPACE, NAME)
        except ClusterError:
            return
        if status == KEPT:
            self.unseen = 0

    def pods(self) -> list[dict[str, Any]]:
        return [thing for thing in self.objects.values() if thing["metadata"]["uid"] in self.born]

    def head(self) -> dict[str, Any] | None:
        """The one that is there, also while it ends."""
        return next((pod for pod in self.pods() if pod["metadata"]["labels"]["ray.io/node-type"] == "head"), None)

    def is_live(self, pod: Mapping[str, Any] | None) -> bool:
        return pod is not None and "deletionTimestamp" not in pod["metadata"]

    async def children_come_up(self) -> None:
        """Kubelet ends what was told to end; Deployments, preflight and, by KubeRay, the gang's pods are there."""
        for pod in self.pods():
            if not self.is_live(pod):
                self._stop(pod)
                self._remove(pod)
        self.make_server_ready()
        preflight = self.objects.get(("Pod", NAMESPACE, f"{NAME}-preflight"))
        if preflight is not None:
            ended = {"terminated": {"exitCode": 0, "message": hrl.PASSED, "finishedAt": self._stamp()}}
            container = {"name": "preflight", "image": "trainer", "state": ended}
            preflight["status"] = {"phase": "Succeeded", "containerStatuses": [container]}
        attempt = self._attempt()
        if (ray := self.objects.get(("RayCluster", NAMESPACE, f"{NAME}-a{attempt}"))) is None:
            return
        ray["spec"]["suspend"] = False
        let_start = {"type": "RayClusterSuspended", "status": "False", "lastTransitionTime": self.admitted}
        ray["status"] = {"conditions": [let_start]}
        there = {pod["metadata"]["labels"]["ray.io/node-type"] for pod in self.pods()}
        for role in ("head", "worker"):
            if role not in there:
                self._make(role, attempt)

    def supervisor_starts(self) -> None:
        head = self.head()
        if head is not None and self.is_live(head) and head["metadata"]["uid"] not in self.incarnations:
            number = max(self.incarnations.values(), default=0) + 1
            self.incarnations[head["metadata"]["uid"]] = number
            self._report(head, "RUNNING")

    def driver_fails(self) -> None:
        head = self._running_head()
        if head is not None:
            self._count_failure()
            self.ended.add(head["metadata"]["uid"])
            self._report(head, "FAILED", failure="infrastructure", message="NCCL")

    def driver_obeys(self) -> None:
        """A stop that it was asked for."""
        head = self._running_head()
        request = self.objects.get(("ConfigMap", NAMESPACE, f"{NAME}-request"))
        if head is not None and request is not None:
            self._stop(head)

    def head_is_lost(self) -> None:
        """With its node: nobody hears a last word."""
        head = self.head()
        if head is not None and self.is_live(head):
            self._count_failure()
            self._remove(head)

    async def is_preempted_and_admitted_again(self) -> None:
        if ("RayCluster", NAMESPACE, f"{NAME}-a{self._attempt()}") not in self.objects:
            return
        for pod in self.pods():
            self._stop(pod)
            self._remove(pod)
        self.seconds += 1
        self.admitted = self._stamp()
        await self.children_come_up()

    def suspend(self, wish: bool) -> None:
        self.job["spec"]["suspend"] = wish

    def _running_head(self) -> dict[str, Any] | None:
        head = self.head()
        uid = head["metadata"]["uid"] if head is not None else None
        return head if uid in self.incarnations and uid not in self.ended and self.is_live(head) else None

    def _stop(self, pod: dict[str, Any]) -> None:
        """The supervisor's last word, where its driver still runs."""
        uid = pod["metadata"]["uid"]
        if uid in self.incarnations and uid not in self.ended:
            self.ended.add(uid)
            self._report(pod, "STOPPED")

    def _count_failure(self) -> None:
        self.failures += 1
        self.unseen += 1

    def _make(self, role: str, attempt: int) -> None:
        uid = f"u{next(self._number)}"
        pod = hrl.trainer_pod(role, attempt=attempt)
        name = f"{NAME}-a{attempt}-{role}" if self._same_name else f"{NAME}-a{attempt}-{role}-{uid}"
        pod["metadata"] |= {"uid": uid, "creationTimestamp": self._stamp()}
        pod["metadata"]["labels"] |= PODS
        self.put("Pod", NAMESPACE, name, pod)
        self.born[uid] = self.failures

    def _remove(self, pod: dict[str, Any]) -> None:
        del self.objects["Pod", NAMESPACE, pod["metadata"]["name"]]

    def _report(self, head: dict[str, Any], state: str, **changes: Any) -> None:
        attempt = int(head["metadata"]["labels"]["harborrl.dev/attempt"])
        number = self.incarnations[head["metadata"]["uid"]]
        observed = {"observedAt": self._stamp()}
        document = hrl.progress(state, observed, attempt=attempt, incarnation=number, **changes)
        labels = {**PODS, "harborrl.dev/role": "progress"}
        self.put("ConfigMap", NAMESPACE, f"{NAME}-progress", {"metadata": {"labels": labels}})
        self.objects["ConfigMap", NAMESPACE, f"{NAME}-progress"]["data"] = {"progress": document}

    def _attempt(self) -> int:
        return int((self.job.get("status") or {}).get("attempt", 1))

    def _stamp(self) -> str:
        return to_text(hrl.NOW + timedelta(seconds=self.seconds + self._skew))
