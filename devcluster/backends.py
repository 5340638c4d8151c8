"""Which cluster the commands act on: the one that the user named, kind's, or our own."""

import shutil
from pathlib import Path
from typing import Protocol

from devcluster.cluster import OwnCluster
from devcluster.existing import ExistingCluster
from devcluster.extras import Request
from devcluster.kindcluster import KindCluster
from devcluster.processes import write_atomically
from devcluster.progress import Reporter
from devcluster.settings import Settings
from devcluster.shell import succeeds
from devcluster.status import Report


class Cluster(Protocol):
    """What the command line asks of a cluster. Every call may be repeated; errors are DevclusterErrors."""

    def up(self, request: Request) -> None:
        """Create or repair; returns when pods can run and KubeRay and the chosen add-ons are there."""

    def down(self) -> None:
        """Remove all that `up` made."""

    def load(self, image: str) -> None:
        """Make an image that was built here available to pods under its name."""

    def status(self) -> Report:
        """What is there now."""


def choose(context: str | None, settings: Settings, *, docker_answers: bool, kind_installed: bool) -> str:
    """Name of the backend: `context:NAME`, `kind` or `own`. A cluster of our own that exists stays the choice."""
    if context:
        return f"context:{context}"
    recorded = recorded_choice(settings)
    if recorded:
        return recorded
    return "kind" if docker_answers and kind_installed else "own"


def choose_here(context: str | None, settings: Settings) -> str:
    kind_installed = shutil.which("kind") is not None
    docker_answers = kind_installed and shutil.which("docker") is not None and succeeds(["docker", "info"])
    return choose(context, settings, docker_answers=docker_answers, kind_installed=kind_installed)


def _record(settings: Settings) -> Path:
    return settings.state / "backend"


def recorded_choice(settings: Settings) -> str | None:
    """The choice of the last `up`, None where there was none."""
    try:
        return _record(settings).read_text().strip() or None
    except FileNotFoundError:
        return None


def record_choice(settings: Settings, choice: str) -> None:
    settings.state.mkdir(parents=True, exist_ok=True)
    write_atomically(_record(settings), f"{choice}\n")


def backend(choice: str, settings: Settings, reporter: Reporter) -> Cluster:
    if choice == "kind":
        return KindCluster(settings, reporter)
    if choice.startswith("context:"):
        return ExistingCluster(choice.removeprefix("context:"), settings, reporter)
    return OwnCluster(settings, reporter)
