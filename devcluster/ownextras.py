"""Add-ons of our own cluster: built, put on the node as images, installed or removed as the choice says."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from devcluster import agentsandbox, bringup, kueue, kwok
from devcluster.addons import kuberay_image
from devcluster.extras import Extras
from devcluster.gobuild import Binaries, render_kuberay
from devcluster.loading import pull
from devcluster.modules import AGENT_SANDBOX, KUBERAY_1_5, KUEUE, KWOK, Built, ensure_module
from devcluster.ocilayout import Layout
from devcluster.progress import Reporter
from devcluster.settings import KUBERAY_VERSION, Settings


@dataclass(frozen=True)
class Place:
    """Where add-ons are installed."""

    settings: Settings
    binaries: Binaries
    reporter: Reporter

    @property
    def kubectl(self) -> list[str | Path]:
        return [self.binaries.path("kubectl"), f"--kubeconfig={self.settings.kubeconfig}"]

    def built(self, module_image: str, built: Built, file: str) -> None:
        """The program as an image of its own on the node."""
        layout = Layout(self.settings.layout)
        layout.add_program_image(module_image, {file: built.program}, [f"/{file}"])
        pull([module_image], self.settings, self.binaries.path("cri"), layout)

    def install(self, manifests: str, namespace: str, deployment: str) -> None:
        bringup.apply(self.settings, self.binaries, manifests)
        bringup.wait_for(self.settings, self.binaries, namespace, deployment)


def kuberay_manifests(place: Place, version: str) -> str:
    """KubeRay's manifests in that version, with its program ready as an image."""
    if version == KUBERAY_VERSION:
        return place.binaries.kuberay_manifests.read_text()
    built = ensure_module(place.settings.cache, KUBERAY_1_5, place.reporter)
    rendered = built.folder / "kuberay-system.yaml"
    render_kuberay(rendered, place.binaries.path("kubectl"), built.module.sources)
    place.built(kuberay_image(version), built, "manager")
    return rendered.read_text()


def install_kueue(place: Place) -> None:
    built = ensure_module(place.settings.cache, KUEUE, place.reporter)
    with place.reporter.stage(f"Install Kueue {KUEUE.version}"):
        place.built(kueue.IMAGE, built, "manager")
        rendered = kueue.manifests(built, place.binaries.path("helm"))
        place.install(rendered, kueue.NAMESPACE, kueue.DEPLOYMENT)


def install_kwok(place: Place) -> None:
    built = ensure_module(place.settings.cache, KWOK, place.reporter)
    with place.reporter.stage(f"Install kwok {KWOK.version} and its nodes"):
        place.built(kwok.IMAGE, built, "kwok")
        place.install(kwok.manifests(built), kwok.NAMESPACE, kwok.DEPLOYMENT)
        kwok.apply_nodes(place.kubectl)


def install_agent_sandbox(place: Place) -> None:
    built = ensure_module(place.settings.cache, AGENT_SANDBOX, place.reporter)
    with place.reporter.stage(f"Install agent-sandbox {AGENT_SANDBOX.version}"):
        place.built(agentsandbox.IMAGE, built, AGENT_SANDBOX.target.name)
        rendered = agentsandbox.manifests(built, place.binaries.path("kubectl"))
        place.install(rendered, agentsandbox.NAMESPACE, agentsandbox.DEPLOYMENT)


INSTALL: dict[str, Callable[[Place], None]] = {
    "kueue": install_kueue,
    "kwok": install_kwok,
    "agent-sandbox": install_agent_sandbox,
}
REMOVE: dict[str, Callable[[list[str | Path]], None]] = {
    "kueue": kueue.remove,
    "kwok": kwok.remove,
    "agent-sandbox": agentsandbox.remove,
}


def settle(place: Place, before: Extras, wanted: Extras) -> None:
    """Removes what is no longer wanted, then installs or repairs what is."""
    for name in before.names:
        if name not in wanted.names:
            with place.reporter.stage(f"Remove {name}"):
                REMOVE[name](place.kubectl)
    for name in wanted.names:
        INSTALL[name](place)
