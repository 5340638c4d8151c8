"""The API server of a sandbox namespace, in memory: objects, watches of them, and exec answered by the test."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast, override

import aiohttp
from harbor.models.task.config import NetworkPolicy

from harborrl_agent_server.sandboxes import wire
from harborrl_agent_server.sandboxes.cluster import Cluster, KubeError, Query
from harborrl_agent_server.sandboxes.images import SandboxConfig
from harborrl_agent_server.sandboxes.kubernetes import KubernetesSandbox
from harborrl_agent_server.sandboxes.kubernetes_provider import KubernetesProvider
from harborrl_agent_server.sandboxes.probe import Finding, Proof
from harborrl_agent_server.settings import Settings
from support.sandbox_suite import built
from support.selectors import selects

RUNNING = {"phase": "Running", "containerStatuses": [{"state": {"running": {}}}]}
ENFORCED = Finding(Proof.ENFORCED, "as a test says")

COLLECTIONS = {"pods", "configmaps", "networkpolicies", "events", "sandboxclaims", "sandboxwarmpools"}

Said = tuple[int, str]
"""Exit code and output of a command."""


class Socket:
    """One command's frames."""

    def __init__(self, said: Said) -> None:
        code, out = said
        causes = [{"reason": "ExitCode", "message": str(code)}]
        status = {"status": "Failure", "details": {"causes": causes}} if code else {"status": "Success"}
        self._frames = [bytes([wire.STDOUT]) + out.encode(), bytes([wire.STATUS]) + json.dumps(status).encode()]

    async def send_bytes(self, data: bytes) -> None: ...

    async def receive(self) -> aiohttp.WSMessage:
        if self._frames:
            return aiohttp.WSMessage(aiohttp.WSMsgType.BINARY, self._frames.pop(0), None)
        return aiohttp.WSMessage(aiohttp.WSMsgType.CLOSED, None, None)

    async def close(self) -> bool:
        return True


class SandboxApi(Cluster):
    """`objects` by path. `status` gives a new pod its status, `refuse` may raise for a request before it is served."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.requests: list[tuple[str, str]] = []
        self.status: Callable[[dict[str, Any]], dict[str, Any]] = lambda _: RUNNING
        self.refuse: Callable[[str, str], None] = lambda _method, _path: None
        self.answer: Callable[[str, list[str]], Said] = lambda _pod, _argv: (0, "")
        self.entered: Callable[[str], None] = lambda _container: None
        self.made: Callable[[str, dict[str, Any]], None] = lambda _path, _thing: None
        """Told of what was created: a controller's part."""
        self._watches: list[tuple[str, asyncio.Queue[dict[str, Any]]]] = []
        self._version = 0

    def of(self, resource: str) -> list[dict[str, Any]]:
        return [thing for path, thing in self.objects.items() if path.split("/")[-2] == resource]

    def names(self, resource: str) -> list[str]:
        return [thing["metadata"]["name"] for thing in self.of(resource)]

    @override
    async def request(
        self, method: str, path: str, *, query: Query = (), body: dict[str, Any] | None = None, timeout_s: float = 0
    ) -> dict[str, Any]:
        self.requests.append((method, path))
        self.refuse(method, path)
        await asyncio.sleep(0)
        if method == "POST" and body is not None:
            return self._post(path, body)
        last = path.rpartition("/")[2]
        if method == "GET" and last in COLLECTIONS:
            found = [one for one in self.of(last) if selects(dict(query).get("labelSelector", ""), one)]
            return {"items": found, "metadata": {"resourceVersion": str(self._version)}}
        if path not in self.objects:
            raise KubeError(404, "NotFound", f"{path} is not there")
        if method == "PATCH" and body is not None:
            return self._patch(path, body)
        if method == "DELETE":
            gone = self.objects.pop(path)
            self._tell("DELETED", path, gone)
            return gone
        return self.objects[path]

    def change(self, name: str, resource: str = "pods", **status: Any) -> None:
        """What the kubelet does to a pod, or a controller to its object."""
        path = next(path for path in self.objects if path.endswith(f"/{resource}/{name}"))
        self._patch(path, {"status": status})

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        where = f"{path}/{body['metadata']['name']}"
        if where in self.objects:
            raise KubeError(409, "AlreadyExists", where)
        thing = {**body, "metadata": {**body["metadata"], "uid": f"uid-{len(self.requests)}"}}
        if path.endswith("/pods"):
            thing["status"] = self.status(thing)
        self.objects[where] = thing
        self._tell("ADDED", where, thing)
        self.made(where, thing)
        return thing

    def _patch(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        meta = self.objects[path]["metadata"]
        for name, wanted in body.get("metadata", {}).items():
            if name in {"uid", "resourceVersion"} and wanted != meta[name]:
                raise KubeError(409, "Conflict", f"{name} of {path} is {meta[name]}")
        self.objects[path] = merge_patched(self.objects[path], body)
        self._tell("MODIFIED", path, self.objects[path])
        return self.objects[path]

    def _tell(self, kind: str, path: str, thing: dict[str, Any]) -> None:
        self._version += 1
        thing["metadata"]["resourceVersion"] = str(self._version)
        for watched, events in self._watches:
            if watched == path.rpartition("/")[0]:
                events.put_nowait({"type": kind, "object": thing})

    @override
    async def watch(self, path: str, query: Query) -> AsyncIterator[dict[str, Any]]:
        events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._watches.append((path, events))
        while True:
            yield await events.get()

    @override
    async def exec_socket(
        self, namespace: str, pod: str, argv: Sequence[str], *, container: str, stdin: bool, protocol: str
    ) -> aiohttp.ClientWebSocketResponse:
        self.entered(container)
        return cast("aiohttp.ClientWebSocketResponse", Socket(self.answer(pod, list(argv))))

    @override
    async def close(self) -> None: ...


def merge_patched(thing: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    out = dict(thing)
    for key, value in patch.items():
        both = isinstance(value, dict) and isinstance(out.get(key), dict)
        out[key] = merge_patched(out[key], value) if both else value
    return {key: value for key, value in out.items() if value is not None}


@contextlib.asynccontextmanager
async def provided(
    api: SandboxApi, folder: Path, config: dict[str, Any] | None = None, **changes: Any
) -> AsyncIterator[KubernetesProvider]:
    """A provider over `api` that takes NetworkPolicies for enforced, unless `sandbox_image` lets it find out."""
    given = Settings(tasks_dir=folder, trials_dir=folder / "trials", sandbox_image="image:1", pod_name="server-1")
    provider = KubernetesProvider(replace(given, **changes), SandboxConfig.model_validate(config or {}))
    provider.enforcement.settle(ENFORCED)
    await provider.start(api)
    yield provider
    await provider.close()


def sandbox_of(
    provider: KubernetesProvider,
    folder: Path,
    network: NetworkPolicy | None = None,
    later: Sequence[NetworkPolicy] = (),
    **task: Any,
) -> KubernetesSandbox:
    made = built(provider, folder, network or NetworkPolicy(), later, **task)
    assert isinstance(made, KubernetesSandbox)
    return made
