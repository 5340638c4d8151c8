"""Brings images to the node. Only layers that the node lacks are exported, sent and unpacked."""

import os
import shutil
from collections.abc import Callable, Iterable, Mapping

from devcluster.errors import CommandError, ImageError, UnsuitableHostError
from devcluster.ocilayout import Layout
from devcluster.registry import Shelf, serve
from devcluster.settings import Settings
from devcluster.shell import run, succeeds


def full_name(image: str) -> str:
    """The name with registry and tag, as the runtime stores it: `trainer` becomes `localhost/trainer:latest`."""
    first, _, rest = image.partition("/")
    if not rest or not ("." in first or ":" in first or first == "localhost"):
        image = f"localhost/{image}"
    return image if ":" in image.rpartition("/")[2] else f"{image}:latest"


def overlay_works() -> bool:
    """Whether kernel and file system let buildah mount overlays; that the kernel has the module proves little."""
    return succeeds(["buildah", "--storage-driver", "overlay", "containers", "--quiet"])


def buildah_environment(
    base: Mapping[str, str] = os.environ, overlay: Callable[[], bool] = overlay_works
) -> dict[str, str]:
    """How buildah must be called here, so that builds and loads see the same images: no daemon, no user namespace."""
    driver = base.get("STORAGE_DRIVER") or ("overlay" if overlay() else "vfs")
    return {**base, "STORAGE_DRIVER": driver, "BUILDAH_ISOLATION": base.get("BUILDAH_ISOLATION", "chroot")}


def export(image: str, layout: Layout) -> None:
    """Writes a built image into the layout, uncompressed: both ends are this machine, and gzip is the slow part.

    buildah's own push compresses on the way to a layout and so can never skip a layer; skopeo reads the same storage.
    """
    if shutil.which("skopeo") is None:
        raise UnsuitableHostError("skopeo is not installed; `make up` installs it.")
    layout.root.mkdir(parents=True, exist_ok=True)
    source, target = f"containers-storage:{image}", f"oci:{layout.root}:{image}"
    copy = ["skopeo", "copy", "--quiet", "--dest-oci-accept-uncompressed-layers", source, target]
    try:
        run(copy, env=buildah_environment())
    except CommandError as error:
        raise ImageError(f"Image {image} could not be exported. Is it built (`buildah images`)? {error}") from error


def load_image(image: str, settings: Settings, cri: str) -> None:
    """Makes a built image runnable on the node under its name, and frees the disk of the copies."""
    name, layout = full_name(image), Layout(settings.layout)
    export(name, layout)
    missed = pull([name], settings, cri, layout)
    if missed:
        # The node has lost layers that it had (an image was removed): send them again.
        layout.drop(missed)
        export(name, layout)
        pull([name], settings, cri, layout)
    layout.hollow(layout.layers(name))
    layout.collect_garbage()
    run([cri, settings.containerd_socket, "prune"])


def pull(names: Iterable[str], settings: Settings, cri: str, layout: Layout) -> set[str]:
    """Pulls images from the layout. The value is the hollow layers that stood in the way, if that is why it failed."""
    with serve(layout, settings.ports.registry) as (shelf, _):
        for name in names:
            try:
                run([cri, settings.containerd_socket, "pull", name])
            except CommandError as error:
                if shelf.missed:
                    return _all_hollow(name, layout, shelf)
                raise ImageError(f"The node could not pull {name}: {error}") from error
    return set()


def _all_hollow(name: str, layout: Layout, shelf: Shelf) -> set[str]:
    """A pull ends at its first missing layer, so every hollow layer of the image is suspect, not only that one."""
    return shelf.missed | {digest for digest in layout.layers(name) if layout.is_hollow(digest)}
