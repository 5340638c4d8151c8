"""Where kubectl and helm are."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from devcluster.gobuild import HELM, KUBE, Target, ensure_binaries
from devcluster.progress import Reporter
from devcluster.settings import Settings

CLIENTS = {"kubectl": KUBE, "helm": HELM}
"""What a cluster that is not our own node does not bring."""

Build = Callable[[Path, Sequence[Target], Reporter], object]


def find_program(name: str, settings: Settings) -> str | None:
    """The dev cluster's own build, else the one on PATH, else None."""
    return shutil.which(name, path=str(settings.cache / "bin")) or shutil.which(name)


def ensure_clients(settings: Settings, reporter: Reporter, build: Build = ensure_binaries) -> None:
    """Compiles those that are neither in the cache nor on PATH: minutes, once. Raises DownloadError or BuildError."""
    missing = [target for name, target in CLIENTS.items() if find_program(name, settings) is None]
    if missing:
        build(settings.cache, missing, reporter)
