"""What the API server says about the job and the Deployment of a server."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from harborrl_agent_server.sandboxes.cluster import KubeError, KubeUnreachableError
from harborrl_agent_server.scope import Standing
from harborrl_agent_server.settings import JobIdentity

LOG = logging.getLogger(__name__)

JOB_PATH = "/apis/harborrl.dev/v1alpha1/namespaces/{namespace}/harborrljobs/{name}"
DEPLOYMENT_PATH = "/apis/apps/v1/namespaces/{namespace}/deployments/{name}"

ASK_SECONDS = 5.0
"""Longest wait for one answer: the grace period of a server that was told to stop is running."""

Get = Callable[[str], Awaitable[dict[str, Any]]]
"""An object by its path; raises KubeError and KubeUnreachableError."""


class Belonging:
    """To which job and Deployment this server belongs, and whether they are still there."""

    def __init__(self, get: Get, job: JobIdentity, deployment: str) -> None:
        self._get = get
        self._job = job
        self._deployment = DEPLOYMENT_PATH.format(namespace=job.namespace, name=deployment) if deployment else ""
        self._deployment_uid: str | None = None

    async def remember(self) -> None:
        """Which Deployment it is: one of the same name that comes later, after a change was taken back, is not ours."""
        if not self._deployment:
            return
        try:
            self._deployment_uid = (await self._get(self._deployment))["metadata"]["uid"]
        except (KubeError, KubeUnreachableError) as error:
            LOG.warning("told to stop, this server will cancel its trials: its Deployment cannot be read (%s)", error)

    async def standing(self) -> Standing:
        if not self._job:
            return Standing.ALONE
        path = JOB_PATH.format(namespace=self._job.namespace, name=self._job.name)
        job_is_gone = await self._is_gone(path, self._job.uid)
        if job_is_gone is None:
            return Standing.UNKNOWN
        if job_is_gone:
            return Standing.ORPHANED
        if self._deployment_uid is None:
            return Standing.ALONE
        replaced = await self._is_gone(self._deployment, self._deployment_uid)
        if replaced is None:
            return Standing.UNKNOWN
        return Standing.REPLACED if replaced else Standing.ALONE

    async def _is_gone(self, path: str, uid: str) -> bool | None:
        """None when the API server does not say. True also while it is deleted: it may be waiting for us to go."""
        try:
            meta = (await self._get(path))["metadata"]
        except KubeError as error:
            if error.status == 404:
                return True
            LOG.warning("cannot tell whether %s still exists: %s", path, error)
            return None
        except KubeUnreachableError as error:
            LOG.warning("cannot tell whether %s still exists: %s", path, error)
            return None
        return bool(meta["uid"] != uid or "deletionTimestamp" in meta)
