"""The only module that talks to the API server: get, list, server-side apply, delete, events."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import aiohttp
from kubernetes.aio import client, config

from harborrl_operator.constants import API_VERSION, FIELD_MANAGER, KIND, PLURAL
from harborrl_operator.errors import ClusterError

REQUEST_TIMEOUT_SECONDS = 30.0


@dataclass(frozen=True)
class _Resource:
    api_version: str
    plural: str
    namespaced: bool = True


_RESOURCES = {
    "ConfigMap": _Resource("v1", "configmaps"),
    "CustomResourceDefinition": _Resource("apiextensions.k8s.io/v1", "customresourcedefinitions", namespaced=False),
    "Deployment": _Resource("apps/v1", "deployments"),
    "Event": _Resource("v1", "events"),
    KIND: _Resource(API_VERSION, PLURAL),
    "Namespace": _Resource("v1", "namespaces", namespaced=False),
    "PersistentVolumeClaim": _Resource("v1", "persistentvolumeclaims"),
    "Pod": _Resource("v1", "pods"),
    "RayCluster": _Resource("ray.io/v1", "rayclusters"),
    "RoleBinding": _Resource("rbac.authorization.k8s.io/v1", "rolebindings"),
    "Service": _Resource("v1", "services"),
    "ServiceAccount": _Resource("v1", "serviceaccounts"),
    "Workload": _Resource("kueue.x-k8s.io/v1beta2", "workloads"),
    "Workload.v1beta1": _Resource("kueue.x-k8s.io/v1beta1", "workloads"),
}


class Cluster:
    """A thin client: plain objects in, plain objects out, ClusterError when the API server says no."""

    def __init__(self, api: client.ApiClient) -> None:
        self._api = api

    @classmethod
    async def connect(cls, kubeconfig: str | None = None, *, impersonate: str | None = None) -> Self:
        """In-cluster when we are a pod and no kubeconfig is named, else by kubeconfig; `impersonate` acts as a user."""
        settings = client.Configuration()
        if kubeconfig is None and "KUBERNETES_SERVICE_HOST" in os.environ:
            config.load_incluster_config(settings)
        else:
            await config.load_kube_config(kubeconfig, client_configuration=settings)
        api = client.ApiClient(settings)
        if impersonate is not None:
            api.set_default_header("Impersonate-User", impersonate)
        return cls(api)

    async def close(self) -> None:
        await self._api.close()

    async def get(self, kind: str, namespace: str | None, name: str) -> dict[str, Any] | None:
        """None when there is no such object."""
        try:
            return await self._call("GET", _path(kind, namespace, name), f"get {kind} {name}")
        except ClusterError as error:
            if error.is_absent:
                return None
            raise

    async def find(
        self, kind: str, namespace: str | None, selector: str = "", fields: str = ""
    ) -> list[dict[str, Any]]:
        """All objects of a kind in a namespace, or in all namespaces."""
        query = [("labelSelector", selector), ("fieldSelector", fields)]
        found = await self._call("GET", _path(kind, namespace), f"list {kind}", query=[q for q in query if q[1]])
        return list(found["items"])

    async def apply(self, thing: Mapping[str, Any], *, subresource: str = "") -> dict[str, Any]:
        """Server-side apply with our field manager; a field that we no longer send is removed."""
        return await self._apply(thing, subresource)

    async def apply_strictly(self, thing: Mapping[str, Any]) -> dict[str, Any]:
        """The same, and a field that the API server does not know is refused, where it would be dropped otherwise."""
        return await self._apply(thing, "", ("fieldValidation", "Strict"))

    async def _apply(self, thing: Mapping[str, Any], subresource: str, *more: tuple[str, str]) -> dict[str, Any]:
        meta = thing["metadata"]
        path = _path(thing["kind"], meta.get("namespace"), meta["name"]) + (f"/{subresource}" if subresource else "")
        return await self._call(
            "PATCH",
            path,
            f"apply {thing['kind']} {meta['name']}",
            body=thing,
            query=[("fieldManager", FIELD_MANAGER), ("force", "true"), *more],
            content_type="application/apply-patch+yaml",
        )

    async def delete(self, kind: str, namespace: str, name: str, uid: str) -> None:
        """Delete in the background; one that is gone or was replaced meanwhile counts as deleted."""
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": uid},
            "propagationPolicy": "Background",
        }
        try:
            await self._call("DELETE", _path(kind, namespace, name), f"delete {kind} {name}", body=body)
        except ClusterError as error:
            if not (error.is_absent or error.is_conflict):
                raise

    async def create(self, thing: Mapping[str, Any]) -> dict[str, Any]:
        path = _path(thing["kind"], thing["metadata"].get("namespace"))
        return await self._call("POST", path, f"create {thing['kind']}", body=thing)

    async def _call(
        self,
        method: str,
        path: str,
        action: str,
        *,
        body: Mapping[str, Any] | None = None,
        query: list[tuple[str, str]] | None = None,
        content_type: str = "application/json",
    ) -> dict[str, Any]:
        request = await self._api.param_serialize(
            method,
            path,
            query_params=query or [],
            header_params={"Accept": "application/json", "Content-Type": content_type},
            body=body,
            auth_settings=["BearerToken"],
        )
        try:
            response = await self._api.call_api(*request, _request_timeout=REQUEST_TIMEOUT_SECONDS)
            text = (await response.read()).decode()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ClusterError(
                action, 0, f"the API server does not answer: {str(error) or type(error).__name__}"
            ) from error
        if not 200 <= response.status <= 299:
            raise ClusterError(action, response.status, _message(text))
        return dict(json.loads(text))


def _path(kind: str, namespace: str | None, name: str = "") -> str:
    resource = _RESOURCES[kind]
    root = f"/api/{resource.api_version}" if "/" not in resource.api_version else f"/apis/{resource.api_version}"
    inside = f"/namespaces/{namespace}" if namespace and resource.namespaced else ""
    return f"{root}{inside}/{resource.plural}" + (f"/{name}" if name else "")


def _message(text: str) -> str:
    """The message of a Status object, else what came."""
    try:
        return str(json.loads(text).get("message") or text)
    except (ValueError, AttributeError):
        return text
