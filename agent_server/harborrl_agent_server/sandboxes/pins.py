"""One content for one image name while the server lives: a tag that moves must not split a group of trials."""

import logging
from typing import Any

from harborrl_agent_server.errors import SandboxStartError
from harborrl_agent_server.sandboxes.references import BadReferenceError, parsed, untagged

LOG = logging.getLogger(__name__)


class ImagePins:
    """What the first sandbox of an image ran is what all later ones are asked to run, by digest."""

    def __init__(self, *, enabled: bool = True) -> None:
        self._enabled = enabled
        """Off where somebody else decides which image runs."""
        self._digests: dict[str, str] = {}
        self._said: set[str] = set()

    def pinned(self, image: str) -> str:
        digest = self._digests.get(image)
        return f"{untagged(image)}@{digest}" if digest else image

    def ran(self, image: str, pod: dict[str, Any]) -> None:
        """A sandbox of `image` runs. Raises `SandboxStartError` when it runs another content than the first one."""
        spec = main_of((pod.get("spec") or {}).get("containers"))
        if not self._enabled or "@" in image or "@" in spec.get("image", ""):
            return
        said = main_of((pod.get("status") or {}).get("containerStatuses")).get("imageID") or ""
        digest = pullable(image, said)
        if digest is None:
            self._keep_tag(image, said)
            return
        first = self._digests.setdefault(image, digest)
        if first != digest:
            raise SandboxStartError(
                "ImageMoved",
                f"{image} was {first} for the first trial and is {digest} on this node; later trials get the first one",
            )

    def _keep_tag(self, image: str, said: str) -> None:
        if image in self._said:
            return
        self._said.add(image)
        LOG.warning(
            "image %s keeps its tag, for the node's name of it cannot be pulled (%s); if the tag moves, trials of one"
            " group may run different images: name it by digest in agentServer.sandbox.images.map",
            image,
            said or "none",
        )


def main_of(containers: list[dict[str, Any]] | None) -> dict[str, Any]:
    return next((one for one in containers or [] if one.get("name") == "main"), {})


def pullable(image: str, image_id: str) -> str | None:
    """The digest in a container status' `imageID`, if the same repository has it; else nodes could not pull it.

    An image that was loaded into a node has no repository's digest, and one that came by two names may show the other.
    """
    name, at, digest = image_id.rpartition("://")[2].partition("@")
    try:
        asked, shown = parsed(image), parsed(name)
    except BadReferenceError:
        return None
    if not at or (asked.host, asked.repository) != (shown.host, shown.repository):
        return None
    return digest
