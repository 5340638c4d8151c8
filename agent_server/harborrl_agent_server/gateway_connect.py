"""Connections to model endpoints: a name is resolved here, judged, and connected to by the address that was judged.

A name server may answer differently a second later (DNS rebinding), so nothing is looked up twice.
"""

import asyncio
import ipaddress
import socket
import zlib
from collections.abc import Sequence
from typing import override

import httpx

from harborrl_agent_server.endpoints import Address, EndpointRefusedError, HostRules, literal

CONNECT_SECONDS = 20.0

POOLS = 64
"""httpcore looks at each connection of a pool again for each request: 512 trials in one pool cost the server more than
the rest of their model requests together."""


class JudgedTransport(httpx.AsyncBaseTransport):
    """Hands every request on under a judged address; the Host header and the name for TLS stay the request's."""

    def __init__(self, rules: HostRules, inner: httpx.AsyncBaseTransport | None = None) -> None:
        self._rules = rules
        self._pools: Sequence[httpx.AsyncBaseTransport] = [inner] if inner else pools(POOLS)

    @override
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Raises `httpx.ConnectError` where nothing answers and `EndpointRefusedError` where nothing may be asked."""
        name = request.url.host.rstrip(".").lower()
        refusal: Exception = httpx.ConnectError(f"{name} has no address", request=request)
        pool = self._pools[zlib.crc32(request.url.raw_path) % len(self._pools)]  # one session, one pool
        for address in await self._addresses(request):
            try:
                self._rules.judge(name, address)
                return await pool.handle_async_request(addressed(request, address))
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
        except OSError as error:
            raise httpx.ConnectError(f"{host}: {error.strerror}", request=request) from error
        return list(dict.fromkeys(ipaddress.ip_address(entry[4][0]) for entry in found))

    @override
    async def aclose(self) -> None:
        for pool in self._pools:
            await pool.aclose()


def pools(number: int) -> list[httpx.AsyncBaseTransport]:
    """No proxies: sessions live inside the cluster. No bound: trials are bounded by their slots."""
    trusted = httpx.create_ssl_context(trust_env=False)
    limits = httpx.Limits(max_connections=None)
    return [httpx.AsyncHTTPTransport(verify=trusted, limits=limits, trust_env=False) for _ in range(number)]


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
    """No time-out but for the connection: the agent's budget bounds a model request."""
    return httpx.AsyncClient(
        transport=JudgedTransport(rules, inner), timeout=httpx.Timeout(None, connect=CONNECT_SECONDS), trust_env=False
    )
