"""What the supervisor does with the API server: write its progress, and ask whether its job still exists."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, override

import aiohttp
from kubernetes.aio import client, config

from harborrl_trainer.job import JobDocument

GROUP, VERSION, PLURAL = "harborrl.dev", "v1alpha1", "harborrljobs"
KEY = "progress"
REQUEST_KEY = "request"
UID_LABEL = "harborrl.dev/job-uid"
_TIMEOUT_SECONDS = 5.0


class ClusterUnavailableError(Exception):
    """The API server did not do what was asked. Ask again later."""


class ConflictError(ClusterUnavailableError):
    """Somebody else wrote since we read: read again before writing."""


@dataclass(frozen=True)
class Stored:
    document: Mapping[str, Any] | None
    """What was written last; None when nothing was, or nothing that can be read."""
    version: str
    """resourceVersion: a write against an older one is a ConflictError."""


class Cluster(Protocol):
    async def read_progress(self) -> Stored: ...

    async def write_progress(self, document: Mapping[str, Any], version: str) -> str:
        """Replace the document that `version` stands for; the new version."""

    async def read_request(self) -> Mapping[str, Any] | None:
        """What the operator asks of this run (docs/contracts.md, "Requests"); None when it asks nothing."""

    async def job_exists(self) -> bool:
        """False only when the API server says so: no such object, another uid, or a deletion under way."""


class KubernetesCluster(Cluster):
    """In-cluster configuration is read on first use, so that a missing token is a passing trouble and no crash."""

    def __init__(self, job: JobDocument, api: client.ApiClient | None = None) -> None:
        self._identity = job.job
        self._config_map = job.progress_config_map or f"{job.job.name}-progress"
        self._request = f"{job.job.name}-request"
        self._api = api

    @override
    async def read_progress(self) -> Stored:
        try:
            found = await client.CoreV1Api(self._connect()).read_namespaced_config_map(
                self._config_map, self._identity.namespace, _request_timeout=_TIMEOUT_SECONDS
            )
        except _TROUBLES as error:
            raise ClusterUnavailableError(_told(error)) from error
        owner = (found.metadata.labels or {}).get(UID_LABEL) if found.metadata else None
        if owner not in (None, self._identity.uid):
            raise ClusterUnavailableError(f"ConfigMap {self._config_map} belongs to another run of this name")
        return Stored(_own(_parse((found.data or {}).get(KEY)), self._identity.uid), _version(found))

    @override
    async def write_progress(self, document: Mapping[str, Any], version: str) -> str:
        text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
        body = {"metadata": {"resourceVersion": version}, "data": {KEY: text}}
        try:
            written = await client.CoreV1Api(self._connect()).patch_namespaced_config_map(
                self._config_map,
                self._identity.namespace,
                body,
                _content_type="application/merge-patch+json",
                _request_timeout=_TIMEOUT_SECONDS,
            )
        except client.ApiException as error:
            kind = ConflictError if error.status == 409 else ClusterUnavailableError
            raise kind(_told(error)) from error
        except _TROUBLES as error:
            raise ClusterUnavailableError(_told(error)) from error
        return _version(written)

    @override
    async def read_request(self) -> Mapping[str, Any] | None:
        try:
            found = await client.CoreV1Api(self._connect()).read_namespaced_config_map(
                self._request, self._identity.namespace, _request_timeout=_TIMEOUT_SECONDS
            )
        except client.ApiException as error:
            if error.status == 404:
                return None
            raise ClusterUnavailableError(_told(error)) from error
        except _TROUBLES as error:
            raise ClusterUnavailableError(_told(error)) from error
        return _parse((found.data or {}).get(REQUEST_KEY))

    @override
    async def job_exists(self) -> bool:
        try:
            found: Any = await client.CustomObjectsApi(self._connect()).get_namespaced_custom_object(
                GROUP,
                VERSION,
                self._identity.namespace,
                PLURAL,
                self._identity.name,
                _request_timeout=_TIMEOUT_SECONDS,
            )
        except client.ApiException as error:
            if error.status == 404:
                return False
            raise ClusterUnavailableError(_told(error)) from error
        except _TROUBLES as error:
            raise ClusterUnavailableError(_told(error)) from error
        metadata = found["metadata"]
        return metadata.get("uid") == self._identity.uid and not metadata.get("deletionTimestamp")

    async def close(self) -> None:
        if self._api is not None:
            await self._api.close()

    def _connect(self) -> client.ApiClient:
        if self._api is None:
            configuration = client.Configuration()
            config.load_incluster_config(configuration)
            self._api = client.ApiClient(configuration)
        return self._api


_TROUBLES = (client.ApiException, config.ConfigException, aiohttp.ClientError, TimeoutError, OSError)


def _version(config_map: client.V1ConfigMap) -> str:
    metadata = config_map.metadata
    return (metadata.resource_version if metadata else None) or ""


def _parse(text: str | None) -> Mapping[str, Any] | None:
    try:
        document = json.loads(text or "null")
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


def _own(document: Mapping[str, Any] | None, uid: str) -> Mapping[str, Any] | None:
    """A job deleted and applied again keeps its names: what the run before wrote is no word of ours."""
    return document if document and document.get("uid", uid) == uid else None


def _told(error: BaseException) -> str:
    if isinstance(error, client.ApiException):
        return f"HTTP {error.status} {error.reason}"
    return f"{type(error).__name__}: {error}"
