"""Objects of the real cluster, read and watched. A test never sleeps: `until` returns with the event that it awaits."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kubernetes import client, config, watch
from kubernetes.dynamic import DynamicClient
from kubernetes.dynamic.exceptions import NotFoundError

Manifest = dict[str, Any]

JOBS, RAY_CLUSTERS = ("harborrl.dev/v1alpha1", "HarborRLJob"), ("ray.io/v1", "RayCluster")
PODS, SERVICES, CONFIG_MAPS, EVENTS = ("v1", "Pod"), ("v1", "Service"), ("v1", "ConfigMap"), ("v1", "Event")
WORKLOADS = ("kueue.x-k8s.io/v1beta2", "Workload")
LEASES = ("coordination.k8s.io/v1", "Lease")
DEPLOYMENTS, REPLICA_SETS = ("apps/v1", "Deployment"), ("apps/v1", "ReplicaSet")
NETWORK_POLICIES = ("networking.k8s.io/v1", "NetworkPolicy")
DISRUPTION_BUDGETS = ("policy/v1", "PodDisruptionBudget")

Kind = tuple[str, str]
"""apiVersion and kind."""

RELIST_SECONDS = 10
"""Longest life of one watch: a bound on what a connection that died silently can cost."""


@dataclass(frozen=True)
class Kube:
    """Reads in plain dictionaries."""

    dynamic: DynamicClient

    @classmethod
    def connect(cls, kubeconfig: str) -> "Kube":
        return cls(DynamicClient(config.new_client_from_config(config_file=kubeconfig)))

    def close(self) -> None:
        api: client.ApiClient = self.dynamic.client
        api.close()
        api.rest_client.pool_manager.clear()

    def get(self, kind: Kind, name: str, namespace: str | None = None) -> Manifest | None:
        try:
            found: Manifest = self._resource(kind).get(name=name, namespace=namespace).to_dict()
        except NotFoundError:
            return None
        return found

    def objects(self, kind: Kind, namespace: str | None = None, selector: str = "") -> list[Manifest]:
        items: list[Manifest] = self._listed(kind, namespace, selector)["items"]
        return items

    def until(
        self,
        true: Callable[[list[Manifest]], bool],
        kind: Kind,
        namespace: str | None = None,
        *,
        selector: str = "",
        timeout: float,
    ) -> list[Manifest]:
        """The objects as soon as `true` of them; fails with what they were after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while True:
            listed = self._listed(kind, namespace, selector)
            items: list[Manifest] = listed["items"]
            if true(items):
                return items
            left = deadline - time.monotonic()
            if left <= 0:
                raise AssertionError(f"{kind[1]} after {timeout:.0f} s: {[brief(item) for item in items]}")
            self._next_event(kind, namespace, selector, listed["metadata"]["resourceVersion"], left)

    def _next_event(self, kind: Kind, namespace: str | None, selector: str, version: str, left: float) -> None:
        """Returns with the first change after `version`, or when there was none for a while."""
        try:
            for _event in watch.Watch().stream(
                self._resource(kind).get,
                namespace=namespace,
                label_selector=selector,
                resource_version=version,
                timeout_seconds=max(1, min(int(left), RELIST_SECONDS)),
                serialize=False,
            ):
                return
        except client.ApiException as error:
            if error.status != 410:  # the version is too old: the caller lists again
                raise

    def _listed(self, kind: Kind, namespace: str | None, selector: str) -> Manifest:
        found: Manifest = self._resource(kind).get(namespace=namespace, label_selector=selector).to_dict()
        return found

    def _resource(self, kind: Kind) -> Any:
        return self.dynamic.resources.get(api_version=kind[0], kind=kind[1])


def name_of(item: Manifest) -> str:
    name: str = item["metadata"]["name"]
    return name


def labels_of(item: Manifest) -> dict[str, str]:
    return item["metadata"].get("labels") or {}


def is_going(item: Manifest) -> bool:
    return "deletionTimestamp" in item["metadata"]


def status_of(item: Manifest) -> Manifest:
    return item.get("status") or {}


def condition(job: Manifest, kind: str) -> Manifest:
    """The condition of that type, or one with status Unknown."""
    nothing = {"type": kind, "status": "Unknown", "reason": "", "message": ""}
    return next((found for found in status_of(job).get("conditions") or [] if found["type"] == kind), nothing)


def brief(item: Manifest) -> tuple[str, str, list[str]]:
    """Name, phase and what the conditions say."""
    status = status_of(item)
    said = [f"{c['type']}={c['status']} {c.get('reason', '')}" for c in status.get("conditions") or []]
    return name_of(item), f"{status.get('phase')} {status.get('message', '')}", said
