"""One list-watch for all sandboxes of this server: trials wait for changes instead of polling."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from harborrl_agent_server.bounded import alone
from harborrl_agent_server.sandboxes.cluster import Cluster, KubeError, KubeUnreachableError

LOG = logging.getLogger(__name__)

RETRY_SECONDS = 1.0
"""At least between two watches: an API server that shuts down, or a proxy, may end each as soon as it is there."""


class PodView:
    """The newest known state of one pod. `gone` is final: names are never used twice."""

    def __init__(self) -> None:
        self.pod: dict[str, Any] | None = None
        self.gone = False
        self._changed = asyncio.Event()

    def update(self, pod: dict[str, Any] | None) -> None:
        if pod is None and self.pod is None:
            return
        self.gone = pod is None
        self.pod = pod or self.pod
        self._changed.set()
        self._changed = asyncio.Event()

    def change(self) -> Coroutine[Any, Any, object]:
        """Completes at the next update after this call: a coroutine's own lines would run later, in its task."""
        return self._changed.wait()


class PodWatch:
    """Keeps the views of expected pods current until `close`. `path`: of other objects than pods."""

    def __init__(self, cluster: Cluster, namespace: str, selector: str, *, path: str | None = None) -> None:
        self._cluster = cluster
        self._path = path or f"/api/v1/namespaces/{namespace}/pods"
        self._selector = ("labelSelector", selector)
        self._views: dict[str, PodView] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = alone(self._follow())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def expect(self, name: str) -> PodView:
        """Register before creating, so that no event is missed."""
        return self._views.setdefault(name, PodView())

    def forget(self, name: str) -> None:
        self._views.pop(name, None)

    async def _follow(self) -> None:
        loop = asyncio.get_running_loop()
        version = ""
        while True:
            begun = loop.time()
            try:
                version = version or await self._list()
                query = [self._selector, ("resourceVersion", version)]
                async for event in self._cluster.watch(self._path, query):
                    version = event["object"]["metadata"]["resourceVersion"]
                    self._apply(event["type"], event["object"])
            except KubeError as error:
                if error.status != 410:
                    LOG.warning("the watch of sandbox pods failed: %s", error)
                version = ""
            except KubeUnreachableError as error:
                LOG.warning("the watch of sandbox pods broke off: %s", error)
                version = ""
            except Exception:  # it is the only one: every trial would wait for a pod that is long ready
                LOG.exception("the watch of sandbox pods met what it does not know")
                version = ""
            await asyncio.sleep(RETRY_SECONDS - (loop.time() - begun))

    async def _list(self) -> str:
        """Bring every view up to date; a pod that was known and is not listed is gone."""
        document = await self._cluster.request("GET", self._path, query=[self._selector])
        listed = {pod["metadata"]["name"]: pod for pod in document["items"]}
        for name, view in self._views.items():
            view.update(listed.get(name))
        version: str = document["metadata"]["resourceVersion"]
        return version

    def _apply(self, kind: str, pod: dict[str, Any]) -> None:
        view = self._views.get(pod["metadata"].get("name", ""))
        if view is not None and kind != "BOOKMARK":
            view.update(None if kind == "DELETED" else pod)
