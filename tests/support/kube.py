"""The real cluster for tests: apply, watch until something is true, and what is left of a job.

Watches instead of sleeping.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from kubernetes import client, watch
from kubernetes.dynamic import DynamicClient
from kubernetes.dynamic.exceptions import NotFoundError

Manifest = dict[str, Any]
Manifests = list[Manifest]
"""Named, for `Kube.list` hides the builtin from the annotations below it."""
JOB_API = "harborrl.dev/v1alpha1"
JOB_KIND = "HarborRLJob"


@dataclass(frozen=True)
class Kube:
    """One API client; methods speak in plain dictionaries."""

    api: client.ApiClient

    @property
    def dynamic(self) -> DynamicClient:
        return DynamicClient(self.api)

    def _resource(self, api_version: str, kind: str) -> Any:
        return self.dynamic.resources.get(api_version=api_version, kind=kind)

    def apply(self, manifest: Manifest, namespace: str | None = None) -> Manifest:
        """Server-side apply, as `kubectl apply --server-side` does."""
        resource = self._resource(manifest["apiVersion"], manifest["kind"])
        applied = resource.server_side_apply(
            body=manifest,
            name=manifest["metadata"]["name"],
            namespace=namespace,
            field_manager="tests",
            force_conflicts=True,
        )
        result: Manifest = applied.to_dict()
        return result

    def get(self, api_version: str, kind: str, name: str, namespace: str | None = None) -> Manifest | None:
        try:
            found: Manifest = self._resource(api_version, kind).get(name=name, namespace=namespace).to_dict()
        except NotFoundError:
            return None
        return found

    def list(self, api_version: str, kind: str, namespace: str | None = None, selector: str = "") -> Manifests:
        found = self._resource(api_version, kind).get(namespace=namespace, label_selector=selector)
        items: Manifests = found.to_dict()["items"]
        return items

    def delete(self, api_version: str, kind: str, name: str, namespace: str | None = None) -> None:
        self._resource(api_version, kind).delete(name=name, namespace=namespace)

    def job(self, name: str, namespace: str) -> Manifest:
        found = self.get(JOB_API, JOB_KIND, name, namespace)
        assert found is not None, f"no HarborRLJob {namespace}/{name}"
        return found

    def until(
        self,
        true: Callable[[Manifests], bool],
        api_version: str,
        kind: str,
        namespace: str | None,
        *,
        selector: str = "",
        timeout: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> Manifests:
        """The listed objects as soon as `true` of them; fails with the last list after `timeout` seconds."""
        deadline = clock() + timeout
        resource = self._resource(api_version, kind)
        while True:
            listed = resource.get(namespace=namespace, label_selector=selector).to_dict()
            if true(listed["items"]):
                items: Manifests = listed["items"]
                return items
            left = int(deadline - clock())
            if left <= 0:
                message = f"after {timeout} s: {[_brief(item) for item in listed['items']]}"
                raise AssertionError(message)
            version = listed["metadata"]["resourceVersion"]
            for _event in watch.Watch().stream(
                resource.get,
                namespace=namespace,
                label_selector=selector,
                resource_version=version,
                timeout_seconds=min(left, 10),
                serialize=False,
            ):
                break

    def until_job(self, name: str, namespace: str, true: Callable[[Manifest], bool], *, timeout: float) -> Manifest:
        """The job as soon as `true` of it."""

        def holds(items: Iterable[Manifest]) -> bool:
            return any(item["metadata"]["name"] == name and true(item) for item in items)

        found = self.until(holds, JOB_API, JOB_KIND, namespace, timeout=timeout)
        return next(item for item in found if item["metadata"]["name"] == name)


def condition(job: Manifest, kind: str) -> Manifest:
    """The condition of that type, or one with status Unknown."""
    listed = (job.get("status") or {}).get("conditions") or []
    return next(
        (c for c in listed if c["type"] == kind), {"type": kind, "status": "Unknown", "reason": "", "message": ""}
    )


def _brief(item: Manifest) -> Any:
    status = item.get("status") or {}
    return (
        item["metadata"]["name"],
        status.get("phase"),
        [(c["type"], c["status"], c.get("reason"), c.get("message")) for c in status.get("conditions") or []],
    )
