"""The only module that says what to ask of the API server: get, list, create, server-side apply, replace, delete."""

import asyncio
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

from kubernetes.aio import client, config

from harborrl_operator.constants import API_VERSION, FIELD_MANAGER, KIND, PLURAL
from harborrl_operator.errors import ClusterError, UnansweredError
from harborrl_operator.shared_read import SharedRead
from harborrl_operator.transport import APPLY, Answer, Request, Send, over_http, patient

PAGE = 500
"""Objects an answer: what kubectl asks for. A page that comes too late (410) fails the pass, which is tried again."""


@dataclass(frozen=True)
class _Resource:
    api_version: str
    plural: str
    namespaced: bool = True


_RESOURCES = {
    "ConfigMap": _Resource("v1", "configmaps"),
    "CustomResourceDefinition": _Resource("apiextensions.k8s.io/v1", "customresourcedefinitions", namespaced=False),
    "Deployment": _Resource("apps/v1", "deployments"),
    "EndpointSlice": _Resource("discovery.k8s.io/v1", "endpointslices"),
    "Event": _Resource("v1", "events"),
    KIND: _Resource(API_VERSION, PLURAL),
    "Lease": _Resource("coordination.k8s.io/v1", "leases"),
    "LimitRange": _Resource("v1", "limitranges"),
    "Namespace": _Resource("v1", "namespaces", namespaced=False),
    "NetworkPolicy": _Resource("networking.k8s.io/v1", "networkpolicies"),
    "Node": _Resource("v1", "nodes", namespaced=False),
    "PersistentVolumeClaim": _Resource("v1", "persistentvolumeclaims"),
    "Pod": _Resource("v1", "pods"),
    "PodDisruptionBudget": _Resource("policy/v1", "poddisruptionbudgets"),
    "RayCluster": _Resource("ray.io/v1", "rayclusters"),
    "Role": _Resource("rbac.authorization.k8s.io/v1", "roles"),
    "ResourceQuota": _Resource("v1", "resourcequotas"),
    "RoleBinding": _Resource("rbac.authorization.k8s.io/v1", "rolebindings"),
    "Service": _Resource("v1", "services"),
    "ServiceAccount": _Resource("v1", "serviceaccounts"),
    "Workload": _Resource("kueue.x-k8s.io/v1beta2", "workloads"),
    "Workload.v1beta1": _Resource("kueue.x-k8s.io/v1beta1", "workloads"),
}


class Cluster:
    """A thin client: plain objects in, plain objects out, ClusterError when the API server says no."""

    def __init__(self, api: client.ApiClient, send: Send | None = None) -> None:
        self._api = api
        self._send = send or patient(over_http(api), asyncio.sleep)

    @classmethod
    async def connect(cls, kubeconfig: str | None = None, *, impersonate: str | None = None) -> Self:
        """In-cluster when we are a pod and no kubeconfig is named, else by kubeconfig; `impersonate` acts as a user."""
        settings = client.Configuration()
        # The queue bounds the passes. A bound here would let requests that hang hold up the lease as well.
        settings.connection_pool_maxsize = 0
        if kubeconfig is None and "KUBERNETES_SERVICE_HOST" in os.environ:
            config.load_incluster_config(settings)
        else:
            await config.load_kube_config(kubeconfig, client_configuration=settings)
        api = client.ApiClient(settings)
        if impersonate is not None:
            api.set_default_header("Impersonate-User", impersonate)
        return cls(api)

    def through(self, wrap: Callable[[Send], Send]) -> Self:
        """The same connection, each request of which passes `wrap`."""
        return type(self)(self._api, wrap(self._send))

    async def close(self) -> None:
        await self._api.close()

    async def get(self, kind: str, namespace: str | None, name: str) -> dict[str, Any] | None:
        """None when there is no such object."""
        try:
            return await self._ask(Request("get", kind, _path(kind, namespace, name)), f"get {kind} {name}")
        except ClusterError as error:
            if error.is_absent:
                return None
            raise

    async def find(
        self, kind: str, namespace: str | None, selector: str = "", fields: str = ""
    ) -> list[dict[str, Any]]:
        """All objects of a kind in a namespace, or in all namespaces; read page by page, all of one moment."""
        asked = (("labelSelector", selector), ("fieldSelector", fields), ("limit", str(PAGE)))
        things: list[dict[str, Any]] = []
        token = ""
        while True:
            query = tuple((name, value) for name, value in (*asked, ("continue", token)) if value)
            found = await self._ask(Request("list", kind, _path(kind, namespace), query), f"list {kind}")
            things += found["items"]
            token = (found.get("metadata") or {}).get("continue") or ""
            if not token:
                return things

    async def find_shared(self, kind: str, namespace: str | None) -> list[dict[str, Any]]:
        """As `find`, by one request for all passes that ask at about the same time; the objects are read only."""
        key = (kind, namespace)
        if key not in self._shared:
            self._shared[key] = SharedRead(lambda: self.find(kind, namespace))
        return await self._shared[key]()

    @cached_property
    def _shared(self) -> dict[tuple[str, str | None], SharedRead[list[dict[str, Any]]]]:
        return {}

    async def serves(self, kind: str) -> bool:
        """Whether the API server knows this kind; asked of its discovery, which everybody may read."""
        resource = _RESOURCES[kind]
        path = f"/apis/{resource.api_version}"
        answer = await self._answer(Request("get", "APIResourceList", path), f"discover {kind}")
        listed = json.loads(answer.text).get("resources", ()) if answer.status == 200 else ()
        return any(served["name"] == resource.plural for served in listed)

    async def apply(self, thing: Mapping[str, Any], *, subresource: str = "") -> dict[str, Any]:
        """Server-side apply with our field manager; a field that we no longer send is removed.

        With a `resourceVersion` in its metadata it conflicts when somebody wrote since.
        """
        meta = thing["metadata"]
        path = _path(thing["kind"], meta.get("namespace"), meta["name"]) + (f"/{subresource}" if subresource else "")
        request = Request(
            "patch",
            thing["kind"],
            path,
            (("fieldManager", FIELD_MANAGER), ("force", "true")),
            thing,
            APPLY,
        )
        return await self._ask(request, f"apply {thing['kind']} {meta['name']}")

    async def create(self, thing: Mapping[str, Any]) -> dict[str, Any]:
        """A conflict when there is one of that name; a field that the API server does not know is refused."""
        return await self._create(thing, (("fieldValidation", "Strict"),))

    async def check(self, thing: Mapping[str, Any]) -> None:
        """As `create`, with all that the API server checks and nothing stored."""
        await self._create(thing, (("dryRun", "All"),))

    async def _create(self, thing: Mapping[str, Any], options: tuple[tuple[str, str], ...]) -> dict[str, Any]:
        path = _path(thing["kind"], thing["metadata"].get("namespace"))
        request = Request("create", thing["kind"], path, (("fieldManager", FIELD_MANAGER), *options), thing)
        return await self._ask(request, f"create {thing['kind']} {thing['metadata'].get('name', '')}".rstrip())

    async def replace(self, thing: Mapping[str, Any]) -> dict[str, Any]:
        """A conflict when somebody wrote since the `resourceVersion` in its metadata."""
        meta = thing["metadata"]
        path = _path(thing["kind"], meta["namespace"], meta["name"])
        return await self._ask(
            Request("update", thing["kind"], path, (("fieldManager", FIELD_MANAGER),), thing),
            f"replace {thing['kind']} {meta['name']}",
        )

    async def delete(self, kind: str, namespace: str, name: str, uid: str) -> None:
        """Delete in the background; one that is gone or was replaced meanwhile counts as deleted."""
        body: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": uid},
            "propagationPolicy": "Background",
        }
        try:
            await self._ask(Request("delete", kind, _path(kind, namespace, name), (), body), f"delete {kind} {name}")
        except ClusterError as error:
            if not (error.is_absent or error.is_conflict):
                raise

    async def _ask(self, request: Request, action: str) -> dict[str, Any]:
        answer = await self._answer(request, action)
        if not 200 <= answer.status <= 299:
            raise ClusterError(action, answer.status, _message(answer.text))
        return dict(json.loads(answer.text))

    async def _answer(self, request: Request, action: str) -> Answer:
        try:
            return await self._send(request)
        except UnansweredError as error:
            raise ClusterError(action, 0, f"the API server does not answer: {error}") from error


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
