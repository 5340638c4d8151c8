"""A read-only image registry over an OCI layout, on loopback, for as long as one pull takes.

It speaks the pull half of the OCI distribution protocol: manifests by tag or digest, blobs by digest.
"""

import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import override
from urllib.parse import parse_qs, urlsplit

from devcluster.ocilayout import MANIFEST_TYPE, Layout

DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
REQUEST = re.compile(r"/v2/(?P<repository>.+)/(?P<kind>manifests|blobs)/(?P<reference>[^/]+)")

LOCAL_HOST = "localhost"
"""Registry part of image names that have none of their own: containerd leaves it out of the path."""


@dataclass(frozen=True)
class Served:
    """One answer: the file to send and what it is."""

    path: Path
    media_type: str
    digest: str


@dataclass
class Shelf:
    """What a request gets. Remembers the hollow blobs that were asked for: they must be exported again."""

    layout: Layout
    missed: set[str] = field(default_factory=set)

    def find(self, target: str) -> Served | None:
        """The file for a request target such as `/v2/harborrl/trainer/manifests/dev?ns=localhost`."""
        parts = urlsplit(target)
        match = REQUEST.fullmatch(parts.path)
        if match is None:
            return None
        if match["kind"] == "blobs":
            return self._blob(match["reference"], "application/octet-stream")
        host = parse_qs(parts.query).get("ns", [LOCAL_HOST])[0]
        return self._manifest(f"{host}/{match['repository']}", match["reference"])

    def _manifest(self, repository: str, reference: str) -> Served | None:
        is_digest = DIGEST.fullmatch(reference)
        digest = reference if is_digest else self.layout.manifest_digest(f"{repository}:{reference}")
        return self._blob(digest, MANIFEST_TYPE) if digest else None

    def _blob(self, digest: str, media_type: str) -> Served | None:
        if not DIGEST.fullmatch(digest):
            return None
        if self.layout.is_hollow(digest):
            self.missed.add(digest)
            return None
        path = self.layout.blob(digest)
        return Served(path, media_type, digest) if path.exists() else None


def handler_for(shelf: Shelf) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def do_GET(self) -> None:
            self._answer(with_body=True)

        def _answer(self, *, with_body: bool) -> None:
            if urlsplit(self.path).path in {"/v2", "/v2/"}:
                self._head(200, 0)
                return
            served = shelf.find(self.path)
            if served is None:
                self._head(404, 0)
                return
            with served.path.open("rb") as stream:
                size = served.path.stat().st_size
                self._head(200, size, {"Content-Type": served.media_type, "Docker-Content-Digest": served.digest})
                if with_body:
                    shutil.copyfileobj(stream, self.wfile, 1 << 20)

        def _head(self, status: int, size: int, headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(size))
            self.end_headers()

        @override
        def log_message(self, format: str, *args: object) -> None:
            """Silent: a failed pull says what it missed."""

    return Handler


@contextmanager
def serve(layout: Layout, port: int) -> Iterator[tuple[Shelf, int]]:
    """Serves the layout on 127.0.0.1; the value is the shelf and the port (a free one for port 0)."""
    shelf = Shelf(layout)
    with ThreadingHTTPServer(("127.0.0.1", port), handler_for(shelf)) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield shelf, server.server_address[1]
        finally:
            server.shutdown()
            thread.join()
