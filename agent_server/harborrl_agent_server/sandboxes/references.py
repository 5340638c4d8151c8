"""An image reference, taken apart as container runtimes do it: pure."""

import re
from dataclasses import dataclass

HUB = "docker.io"
HUB_ADDRESS = "registry-1.docker.io"

PATH = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*")
TAG = re.compile(r"\w[\w.-]{0,127}", re.ASCII)
DIGEST = re.compile(r"[a-z0-9+._-]+:[0-9a-fA-F]{32,}")
HOST = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9a-fA-F:]+\])(?::[0-9]+)?")


class BadReferenceError(ValueError):
    """No container runtime would take it."""


@dataclass(frozen=True)
class Reference:
    host: str
    """As written, `docker.io` where nothing is: the name that credentials are kept under."""
    repository: str
    tag: str | None = None
    digest: str | None = None

    @property
    def manifest(self) -> str:
        """What the registry is asked for; a digest outranks a tag."""
        return self.digest or self.tag or "latest"

    @property
    def address(self) -> str:
        return HUB_ADDRESS if self.host == HUB else self.host

    @property
    def is_local(self) -> bool:
        """On this machine: reached without TLS, as Docker does it."""
        name = self.host.rsplit(":", 1)[0] if not self.host.endswith("]") else self.host
        return name in {"localhost", "[::1]"} or name.startswith("127.")


def parsed(text: str) -> Reference:
    """Raises `BadReferenceError` with what is wrong."""
    name, _, digest = text.partition("@")
    if "@" in text and not DIGEST.fullmatch(digest):
        raise BadReferenceError(f"{digest!r} is no digest")
    head, _, last = name.rpartition("/")
    last, _, tag = last.partition(":")
    if tag and not TAG.fullmatch(tag):
        raise BadReferenceError(f"{tag!r} is no tag")
    host, _, rest = f"{head}/{last}".lstrip("/").partition("/")
    if not rest or not (set(".:[") & set(host) or host == "localhost"):
        host, rest = HUB, f"{head}/{last}".lstrip("/")
        rest = rest if "/" in rest else f"library/{rest}"
    if host == "index.docker.io":
        host = HUB
    if not HOST.fullmatch(host):
        raise BadReferenceError(f"{host!r} is no registry")
    if not PATH.fullmatch(rest):
        raise BadReferenceError(f"{rest!r} is no repository: lower-case letters, digits and . _ - between them")
    return Reference(host, rest, tag or None, digest or None)


def untagged(text: str) -> str:
    """The name alone, spelled as it was."""
    head, slash, last = text.partition("@")[0].rpartition("/")
    return head + slash + last.partition(":")[0]
