"""Which cluster the commands act on: the one that the user named, kind's, or our own."""

import shutil
from typing import Protocol

from devcluster.choice import CONTEXT, KIND, choose
from devcluster.cluster import OwnCluster
from devcluster.existing import ExistingCluster
from devcluster.extras import Request
from devcluster.kindcluster import KindCluster
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


def choose_here(context: str | None, settings: Settings) -> str:
    kind_installed = shutil.which("kind") is not None
    docker_answers = kind_installed and shutil.which("docker") is not None and succeeds(["docker", "info"])
    return choose(context, settings, docker_answers=docker_answers, kind_installed=kind_installed)


def backend(choice: str, settings: Settings, reporter: Reporter) -> Cluster:
    if choice == KIND:
        return KindCluster(settings, reporter)
    if choice.startswith(CONTEXT):
        return ExistingCluster(choice.removeprefix(CONTEXT), settings, reporter)
    return OwnCluster(settings, reporter)
