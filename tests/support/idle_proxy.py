"""A proxy that cuts a connection on which nothing has come back for a while, as load balancers do."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from urllib.parse import urlsplit


class IdleProxy:
    def __init__(self, upstream: str, idle_s: float) -> None:
        self._upstream = urlsplit(upstream)
        self._idle_s = idle_s
        self.cut = 0
        """Connections that were ended for their silence."""
        self.received = bytearray()
        """What came back on all of them."""
        self._open: set[asyncio.StreamWriter] = set()

    def die(self) -> None:
        """Cut everything at once."""
        for writer in self._open:
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, forth = await asyncio.open_connection(self._upstream.hostname, self._upstream.port)
        self._open |= {writer, forth}
        sending = asyncio.ensure_future(_copy(reader, forth))
        try:
            while data := await asyncio.wait_for(back.read(4096), self._idle_s):
                self.received += data
                writer.write(data)
        except TimeoutError:
            self.cut += 1
        finally:
            sending.cancel()
            for end in (forth, writer):
                end.close()
                self._open.discard(end)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(4096):
        writer.write(data)


@contextlib.asynccontextmanager
async def idle_proxy(upstream: str, idle_s: float) -> AsyncIterator[tuple[str, IdleProxy]]:
    """Its address and itself, in front of `upstream`."""
    proxy = IdleProxy(upstream, idle_s)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", proxy
