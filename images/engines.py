"""The two programs that build images, behind one small set of commands."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from devcluster.choice import KIND, OWN
from devcluster.loading import buildah_environment

from images import process
from images.process import BuildError

Capture = Callable[[Sequence[str]], str | None]
"""Standard output of a program, None when it is missing or fails."""

INPUTS_LABEL = "harborrl.dev/inputs"
"""Label that carries an image's fingerprint: what is already built is found by asking the engine."""


class Engine(Protocol):
    """Docker or buildah. `log` receives the program's output."""

    @property
    def name(self) -> str:
        """As the user would type it."""

    def label(self, image: str) -> str | None:
        """The image's fingerprint, None when the image does not exist."""

    def size(self, image: str) -> int:
        """Bytes of the image's layers, unpacked."""

    def pull(self, reference: str, image: str, label: str, log: Path) -> None:
        """Fetch `reference` and name it `image`."""

    def adopt(self, rootfs: Path, image: str, label: str, log: Path) -> None:
        """Make `image` from the tar file of a root file system."""

    def build(self, image: str, *, target: str, base: str, label: str, secrets: Mapping[str, Path], log: Path) -> None:
        """Build a target of the Dockerfile in the working directory."""


def _build_options(target: str, base: str, label: str, secrets: Mapping[str, Path]) -> list[str]:
    options = ["--target", target, "--build-arg", f"BASE_IMAGE={base}", "--label", f"{INPUTS_LABEL}={label}"]
    for name, path in secrets.items():
        options += ["--secret", f"id={name},src={path}"]
    return options


@dataclass(frozen=True)
class Docker:
    name: str = "docker"

    def label(self, image: str) -> str | None:
        return process.capture(
            ["docker", "image", "inspect", image, "--format", f'{{{{index .Config.Labels "{INPUTS_LABEL}"}}}}']
        )

    def size(self, image: str) -> int:
        return int(process.capture(["docker", "image", "inspect", image, "--format", "{{.Size}}"]) or 0)

    def pull(self, reference: str, image: str, label: str, log: Path) -> None:
        process.run(["docker", "pull", reference], log)
        process.run(
            ["docker", "build", "--label", f"{INPUTS_LABEL}={label}", "--tag", image, *_from(reference, log)], log
        )

    def adopt(self, rootfs: Path, image: str, label: str, log: Path) -> None:
        changes = ["--change", f"LABEL {INPUTS_LABEL}={label}", "--change", 'CMD ["/bin/sh"]']
        process.run(["docker", "import", *changes, str(rootfs), image], log)

    def build(self, image: str, *, target: str, base: str, label: str, secrets: Mapping[str, Path], log: Path) -> None:
        argv = ["docker", "build", *_build_options(target, base, label, secrets), "--tag", image, "."]
        process.run(argv, log, {**os.environ, "DOCKER_BUILDKIT": "1"})


@dataclass(frozen=True)
class Buildah:
    storage_driver: str
    name: str = "buildah"
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    @property
    def _env(self) -> dict[str, str]:
        # chroot isolation: works inside containers and virtual machines that forbid nested namespaces.
        return {**self.environment, "BUILDAH_ISOLATION": "chroot", "STORAGE_DRIVER": self.storage_driver}

    def _capture(self, *argv: str) -> str | None:
        return process.capture(["buildah", "--storage-driver", self.storage_driver, *argv])

    def _run(self, log: Path, *argv: str) -> None:
        process.run(["buildah", *argv], log, self._env)

    def label(self, image: str) -> str | None:
        return self._capture(
            "inspect", "--type", "image", "--format", f'{{{{index .OCIv1.Config.Labels "{INPUTS_LABEL}"}}}}', image
        )

    def size(self, image: str) -> int:
        manifest = self._capture("inspect", "--type", "image", "--format", "{{.Manifest}}", image)
        return sum(layer["size"] for layer in json.loads(manifest or "{}").get("layers", []))

    def pull(self, reference: str, image: str, label: str, log: Path) -> None:
        self._run(log, "pull", reference)
        self._run(log, "bud", "--label", f"{INPUTS_LABEL}={label}", "--tag", image, *_from(reference, log))

    def adopt(self, rootfs: Path, image: str, label: str, log: Path) -> None:
        container = f"harborrl-base-{label[:12]}"
        if self._capture("inspect", "--type", "container", container) is not None:  # left by a killed build
            self._run(log, "rm", container)
        self._run(log, "from", "--name", container, "scratch")
        self._run(log, "add", "--quiet", container, str(rootfs), "/")
        self._run(log, "config", "--cmd", '["/bin/sh"]', "--label", f"{INPUTS_LABEL}={label}", container)
        self._run(log, "commit", "--quiet", "--rm", container, image)

    def build(self, image: str, *, target: str, base: str, label: str, secrets: Mapping[str, Path], log: Path) -> None:
        self._run(log, "bud", "--layers", *_build_options(target, base, label, secrets), "--tag", image, ".")


def _from(reference: str, log: Path) -> list[str]:
    """Arguments that build an empty Dockerfile on top of `reference`: how an image gets a label and no change."""
    folder = log.parent / "from"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "Dockerfile").write_text(f"FROM {reference}\n", encoding="utf-8")
    return [str(folder)]


def detect(euid: int, cluster: str | None, capture: Capture = process.capture) -> Engine:
    """The engine whose images the cluster can load: `cluster` is what devcluster's state folder is in use for.

    Our own node reads buildah's storage and kind reads Docker's; elsewhere it is Docker when its daemon answers.
    """
    if cluster != OWN and capture(["docker", "info", "--format", "{{.ServerVersion}}"]):
        return Docker()
    if cluster == KIND:
        raise BuildError("the kind cluster loads Docker's images and no Docker engine answers: start Docker")
    without = "our own cluster loads buildah's images" if cluster == OWN else "no Docker engine answers"
    if capture(["buildah", "--version"]) is None:
        raise BuildError(f"{without} and buildah is not installed: `apt-get install buildah`")
    if euid != 0:
        raise BuildError(f"{without} and buildah needs root here: run again as root")
    return Buildah(buildah_environment()["STORAGE_DRIVER"])
