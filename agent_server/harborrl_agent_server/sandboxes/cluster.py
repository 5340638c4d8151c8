"""The API server, spoken to in plain JSON through the official client's connections and credentials."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Sequence
from typing import Any
from urllib.parse import quote

import aiohttp
from kubernetes.aio import client, config
from kubernetes.aio.stream import WsApiClient

REQUEST_SECONDS = 20.0
WATCH_SECONDS = 240
"""The server ends a watch after this long; silence for longer means that the connection is dead."""
PING_SECONDS = 20.0
"""Between WebSocket pings: load balancers cut connections that say nothing (60 s is common)."""

NO_ANSWER = (aiohttp.ClientError, TimeoutError, OSError, ValueError, config.ConfigException)
"""ValueError: a proxy's page instead of JSON. ConfigException: the pod's token is just being replaced. One that got
through would end the only watch, and every trial would wait for a pod that is long ready."""

CONFLICT_PAUSES = (0.1, 0.3, 1.0, 3.0)
"""Seconds before the next try of a creation that met another request's."""

MERGE_PATCH = {"Content-Type": "application/merge-patch+json"}

Query = Sequence[tuple[str, str]]


class KubeError(Exception):
    """The API server answered with an error."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message

    @property
    def is_there(self) -> bool:
        """An object of that name exists. Other conflicts have the same status: a quota that was just changed, say."""
        return self.reason == "AlreadyExists"


class KubeUnreachableError(Exception):
    """No answer from the API server; whether it acted is unknown."""


class Cluster:
    """JSON requests, watches and exec connections. Opened and closed once; shared by all trials."""

    def __init__(self, configuration: client.Configuration) -> None:
        configuration.connection_pool_maxsize = 0
        configuration.client_session_kwargs = {"trust_env": False}
        self._plain = client.ApiClient(configuration)
        self._sockets = WsApiClient(configuration, heartbeat=PING_SECONDS)

    @classmethod
    async def connect(cls) -> "Cluster":
        """In a pod the pod's own account, elsewhere KUBECONFIG or ~/.kube/config."""
        configuration = client.Configuration()
        if os.environ.get("KUBERNETES_SERVICE_HOST"):
            config.load_incluster_config(client_configuration=configuration)
        else:
            # By itself the client reads KUBECONFIG once, when it is imported.
            await config.load_kube_config(os.environ.get("KUBECONFIG"), client_configuration=configuration)
        return cls(configuration)

    async def close(self) -> None:
        await self._plain.close()
        await self._sockets.close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Query = (),
        body: dict[str, Any] | None = None,
        timeout_s: float = REQUEST_SECONDS,
    ) -> dict[str, Any]:
        """One request; raises `KubeError` for an error status and `KubeUnreachableError` for no answer.

        The body of a PATCH is a merge patch (RFC 7386).
        """
        try:
            response = await self._send(method, path, query, body, aiohttp.ClientTimeout(total=timeout_s))
            text = await response.text()
            if response.status >= 400:
                raise kube_error(response.status, text)
            document: dict[str, Any] = json.loads(text)
        except NO_ANSWER as error:
            raise KubeUnreachableError(f"{method} {path}: {type(error).__name__}: {error}") from error
        return document

    async def watch(self, path: str, query: Query) -> AsyncIterator[dict[str, Any]]:
        """Events until the server ends the watch; raises as `request` does."""
        query = [*query, ("watch", "1"), ("timeoutSeconds", str(WATCH_SECONDS)), ("allowWatchBookmarks", "true")]
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=REQUEST_SECONDS, sock_read=WATCH_SECONDS + 30)
        try:
            response = await self._send("GET", path, query, None, timeout)
            if response.status >= 400:
                raise kube_error(response.status, await response.text())
            try:
                async for line in response.content:
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        raise kube_error(event["object"].get("code", 500), json.dumps(event["object"]))
                    yield event
            finally:
                response.close()
        except NO_ANSWER as error:
            raise KubeUnreachableError(f"watch {path}: {type(error).__name__}: {error}") from error

    async def exec_socket(
        self, namespace: str, pod: str, argv: Sequence[str], *, container: str, stdin: bool, protocol: str
    ) -> aiohttp.ClientWebSocketResponse:
        """An open exec connection that speaks `protocol`; raises aiohttp's errors when it is refused."""
        flags = [("stdin", "true")] if stdin else []
        query = [
            ("container", container),
            ("stdout", "true"),
            ("stderr", "true"),
            *flags,
            *(("command", word) for word in argv),
        ]
        path = f"/api/v1/namespaces/{quote(namespace)}/pods/{quote(pod)}/exec"
        method, url, headers, _, _ = await self._sockets.param_serialize(
            "GET",
            path,
            query_params=query,
            header_params={"sec-websocket-protocol": protocol},
            auth_settings=["BearerToken"],
        )
        answer = await self._sockets.call_api(method, url, header_params=headers, _preload_content=False)
        socket: aiohttp.ClientWebSocketResponse = await answer.response
        return socket

    async def _send(
        self, method: str, path: str, query: Query, body: dict[str, Any] | None, limits: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        verb, url, headers, content, _ = await self._plain.param_serialize(
            method,
            path,
            query_params=list(query),
            header_params={"Accept": "application/json"} | (MERGE_PATCH if method == "PATCH" else {}),
            body=body,
            auth_settings=["BearerToken"],
        )
        answer = await self._plain.call_api(verb, url, headers, content, _request_timeout=limits)
        response: aiohttp.ClientResponse = answer.response
        return response


def kube_error(status: int, text: str) -> KubeError:
    try:
        document = json.loads(text)
        return KubeError(status, document.get("reason") or "", document.get("message") or "")
    except (ValueError, AttributeError):
        return KubeError(status, "", text[:500])


async def created(cluster: Cluster, path: str, body: dict[str, Any]) -> dict[str, Any] | None:
    """Create an object; None when one of its name is there. Raises as `request` does.

    A namespace's quota that others have just written to is a conflict that passes (kubernetes/kubernetes#67761).
    """
    pauses = iter(CONFLICT_PAUSES)
    while True:
        try:
            return await cluster.request("POST", path, body=body)
        except KubeError as error:
            if error.is_there:
                return None
            pause = next(pauses, None)
            if error.status != 409 or pause is None:
                raise
        await asyncio.sleep(pause)


async def settled(cluster: Cluster, path: str, uid: str | None) -> None:
    """Delete an object if it is still the one with this uid; gone already is fine."""
    preconditions = {"preconditions": {"uid": uid}} if uid else {}
    body = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "gracePeriodSeconds": 1,
        "propagationPolicy": "Background",
        **preconditions,
    }
    for pause in (0.5, 2.0, None):
        try:
            await cluster.request("DELETE", path, body=body)
        except KubeError as error:
            if error.status in {404, 409}:
                return
            if (error.status < 500 and error.status != 429) or pause is None:
                raise
        except KubeUnreachableError:
            if pause is None:
                raise
        else:
            return
        await asyncio.sleep(pause)
