"""From a bare checkout to a cluster with the product on it, each step a command that a user could type."""

from __future__ import annotations

from dataclasses import dataclass

from devcluster.choice import CONTEXT, recorded_choice
from devcluster.locks import exclusive
from devcluster.programs import find_program
from devcluster.settings import load_settings

from demo import release
from demo.shell import Shell, python

PRODUCT_IMAGES = ("operator", "agent-server", "trainer")
DATA_IMAGE = "quickstart"


@dataclass(frozen=True)
class Tools:
    """Where kubectl and helm are, and the environment that makes them speak to the demo's cluster."""

    shell: Shell
    kubectl: str
    helm: str


def image(target: str) -> str:
    return f"localhost/harborrl/{target}:dev"


class UnsuitableClusterError(Exception):
    """The demo cannot bring its images to the cluster that was chosen."""


def refuse_named_context(choice: str | None) -> None:
    """`choice` is what devcluster has recorded. Asked before images are built, which takes many minutes."""
    if choice is not None and choice.startswith(CONTEXT):
        raise UnsuitableClusterError(
            f"The cluster is {choice}, whose nodes cannot be given images from here. `make down` forgets it, and the"
            ' same command then uses a cluster of ours. To install on yours, push the images: README, "Run your own".'
        )


def prepare() -> Tools:
    """Cluster up, images built and loaded, chart installed. Idempotent: what is there already costs seconds."""
    refuse_named_context(recorded_choice(load_settings()))
    shell = Shell.here()
    shell.run(python("devcluster", "up"))
    targets = ("base", *PRODUCT_IMAGES, DATA_IMAGE)
    shell.run(python("images", "build", *targets))
    shell.run(python("devcluster", "load", *(image(target) for target in targets)))
    tools = _tools(shell)
    with exclusive(load_settings().cache / "release.lock"):
        release.install(
            tools.shell, kubectl=tools.kubectl, helm=tools.helm, settings={"operator.revision": _revision(shell)}
        )
    return tools


def _tools(shell: Shell) -> Tools:
    kubeconfig = shell.read(python("devcluster", "kubeconfig")).strip()
    kubectl, helm = (find_program(name, load_settings()) or name for name in ("kubectl", "helm"))
    return Tools(Shell.here(KUBECONFIG=kubeconfig), kubectl, helm)


def _revision(shell: Shell) -> str:
    """Changes when the operator's image does: the tag stays, so the pod template has to say it."""
    return shell.read(python("images", "fingerprint", "operator")).strip()
