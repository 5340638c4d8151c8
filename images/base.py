"""The base image: from a registry where there is one, else a small Debian made from the machine's own mirror."""

import hashlib
import os
import platform
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from images import host, process
from images.engines import Engine
from images.process import BuildError

DEBOOTSTRAP = "debootstrap"
REGISTRY_IMAGE = "python:3.13-slim"

SUITE = "trixie"
PACKAGES = ("ca-certificates", "python3", "python3-venv")
UNUSED = (
    "var/cache/apt",
    "var/lib/apt/lists",
    "var/log",
    "var/cache/debconf",
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
    "usr/share/info",
)
MACHINE = ("etc/hostname", "etc/resolv.conf", "etc/apt/sources.list")
"""What debootstrap copies from the building machine; a container gets its own."""


@dataclass(frozen=True)
class Base:
    """`origin` is an image reference, or DEBOOTSTRAP."""

    origin: str

    @property
    def identity(self) -> str:
        recipe = (self.origin, *((SUITE, platform.machine(), *PACKAGES, *UNUSED) if self.origin == DEBOOTSTRAP else ()))
        return hashlib.sha256("\0".join(recipe).encode()).hexdigest()


def build(base: Base, engine: Engine, image: str, cache: Path, log: Path) -> None:
    if base.origin != DEBOOTSTRAP:
        engine.pull(base.origin, image, base.identity, log)
        return
    rootfs = cache / f"rootfs-{SUITE}-{base.identity[:16]}.tar"
    if not rootfs.exists():
        _bootstrap(rootfs, log, os.environ)
    engine.adopt(rootfs, image, base.identity, log)


def _bootstrap(rootfs: Path, log: Path, environ: Mapping[str, str]) -> None:
    """Write `rootfs` in one rename. The work folder of an earlier, killed run is replaced."""
    mirror = host.debian_mirror(host.apt_sources())
    if mirror is None:
        raise BuildError("no Debian archive in /etc/apt: start Docker, or give an image with `--base IMAGE`")
    tree = rootfs.with_suffix(".tree")
    if tree.exists():
        shutil.rmtree(tree)
    rootfs.parent.mkdir(parents=True, exist_ok=True)
    proxy = process.capture(["apt-config", "shell", "P", "Acquire::http::Proxy"]) or ""
    env = {**environ, **({"http_proxy": proxy.split("=", 1)[1].strip("'")} if "=" in proxy else {})}
    command = ["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE, str(tree), mirror]
    # A mount namespace of its own: what debootstrap mounts inside the tree is gone with it, however it ends.
    process.run(["unshare", "--mount", "--propagation", "private", *command], log, env)
    for path in UNUSED:
        shutil.rmtree(tree / path, ignore_errors=True)
        (tree / path).mkdir(parents=True)
    for path in MACHINE:
        (tree / path).unlink(missing_ok=True)
    partial = rootfs.with_suffix(".partial")
    process.run(
        ["tar", "--create", "--sort=name", "--numeric-owner", "--file", str(partial), "--directory", str(tree), "."],
        log,
    )
    partial.replace(rootfs)
    shutil.rmtree(tree)
