"""Connections to model endpoints: a name is resolved here, judged, and connected to by the address that was judged.

A name server may answer differently a second later (DNS rebinding), so nothing is looked up twice.
"""

import asyncio
import ipaddress
import socket
import ssl
from functools import cache
from typing import override

import httpx

from harborrl_agent_server.endpoints import Address, EndpointRefusedError, HostRules, literal

CONNECT_SECONDS = 20.0


class JudgedTransport(httpx.AsyncBaseTransport):
    """Hands every request on under a judged address; the Host header and the name for TLS stay the request's."""

    def __init__(self, rules: HostRules, inner: httpx.AsyncBaseTransport | None = None) -> None:
        self._rules = rules
        # No proxies: sessions live inside the cluster.
        self._inner = inner or httpx.AsyncHTTPTransport(verify=trusted(), trust_env=False)

    @override
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Raises `httpx.ConnectError` where nothing answers and `EndpointRefusedError` where nothing may be asked."""
        name = request.url.host.rstrip(".").lower()
        refusal: Exception = httpx.ConnectError(f"{name} has no address", request=request)
        for address in await self._addresses(request):
            try:
                self._rules.judge(name, address)
                return await self._inner.handle_async_request(addressed(request, address))
            except (EndpointRefusedError, httpx.ConnectError, httpx.ConnectTimeout) as error:
                refusal = error
        raise refusal

    async def _addresses(self, request: httpx.Request) -> list[Address]:
        host = request.url.host
        written = literal(host)
        if written is not None:
            return [written]
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:  # the latter for a name that cannot be one
            raise httpx.ConnectError(f"{host}: {error}", request=request) from error
        return list(dict.fromkeys(ipaddress.ip_address(entry[4][0]) for entry in found))

    @override
    async def aclose(self) -> None:
        await self._inner.aclose()


@cache
def trusted() -> ssl.SSLContext:
    """Reading the certificates takes longer than all requests of a small trial."""
    return httpx.create_ssl_context(trust_env=False)


def addressed(request: httpx.Request, address: Address) -> httpx.Request:
    """The same request to one address; its Host header was written when it was built."""
    return httpx.Request(
        request.method,
        request.url.copy_with(host=str(address)),
        headers=request.headers,
        stream=request.stream,
        extensions={**request.extensions, "sni_hostname": request.url.host},
    )


def model_client(rules: HostRules, inner: httpx.AsyncBaseTransport | None = None) -> httpx.AsyncClient:
    """Of one trial: httpcore looks at every connection of a client again for each request, and a trial has few.

    No time-out but for the connection: the agent's budget bounds a model request.
    """
    return httpx.AsyncClient(
        transport=JudgedTransport(rules, inner), timeout=httpx.Timeout(None, connect=CONNECT_SECONDS), trust_env=False
    )
