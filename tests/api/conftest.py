"""A real API server with our CRD, KubeRay's and the sandbox namespace; no operator and no node."""

import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from devcluster.controlplane import RunningControlPlane, control_plane
from devcluster.gobuild import render_kuberay

from harborrl_operator.cluster import Cluster
from support import hrl
from support.control_plane import api_server
from support.programs import program

__all__ = ["api_server"]

ESTABLISHED_SECONDS = 120.0
"""For the API server to serve two new resources; it takes one on an idle machine."""

ROOT = Path(__file__).resolve().parents[2]


class Kubectl:
    """The control plane's own kubectl."""

    def __init__(self, plane: RunningControlPlane) -> None:
        self.plane = plane

    def __call__(self, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        command = [self.plane.kubectl, "--kubeconfig", str(self.plane.kubeconfig), *arguments]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=180)  # noqa: S603 - our own binary

    def ok(self, *arguments: str, stdin: str | None = None) -> str:
        done = self(*arguments, stdin=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout


def install_kinds(kubectl: Kubectl, folder: Path) -> None:
    """Our CRD, KubeRay's and the namespace for sandboxes."""
    kuberay = folder / "kuberay.yaml"
    render_kuberay(kuberay, kubectl.plane.kubectl)
    kubectl.ok("apply", "--server-side", "--filename", str(kuberay))
    kubectl.ok("apply", "--filename", str(ROOT / "crds" / "harborrljobs.yaml"))
    wait = ("wait", "--for=condition=Established", "crd/harborrljobs.harborrl.dev", "crd/rayclusters.ray.io")
    # kubectl gives up on a CRD whose status is still empty.
    deadline = time.monotonic() + ESTABLISHED_SECONDS
    while (waited := kubectl(*wait)).returncode != 0:
        assert time.monotonic() < deadline, waited.stderr
        time.sleep(0.2)
    kubectl.ok("create", "namespace", "harborrl-sandboxes")
    kubectl.ok("label", "namespace", "harborrl-sandboxes", "harborrl.dev/sandboxes=true")


@pytest.fixture(scope="session")
def kubectl(api_server: RunningControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    kubectl = Kubectl(api_server)
    install_kinds(kubectl, tmp_path_factory.mktemp("kuberay"))
    return kubectl


@pytest.fixture(scope="session")
def bare_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningControlPlane]:
    """An API server without controllers: whatever happens to an object, the test did it or the operator."""
    with control_plane(tmp_path_factory.mktemp("bare")) as running:
        install_kinds(Kubectl(running), running.directory)
        running.kill("kube-controller-manager")
        yield running


@pytest.fixture
async def bare_cluster(bare_plane: RunningControlPlane) -> AsyncIterator[Cluster]:
    """With every right on the bare API server."""
    connected = await Cluster.connect(str(bare_plane.kubeconfig))
    yield connected
    await connected.close()


@pytest.fixture
def namespace(kubectl: Kubectl, request: pytest.FixtureRequest) -> str:
    """A namespace of the test's own, with the default claim."""
    name = f"t-{abs(hash(request.node.nodeid)) % 10**8}"
    kubectl.ok("create", "namespace", name)
    claim: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": hrl.SETTINGS.default_claim},
        "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    kubectl.ok("apply", "--namespace", name, "--filename", "-", stdin=hrl.text(claim))
    return name


@pytest.fixture
async def cluster(kubectl: Kubectl) -> AsyncIterator[Cluster]:
    connected = await Cluster.connect(str(kubectl.plane.kubeconfig))
    yield connected
    await connected.close()


@pytest.fixture
def submit(kubectl: Kubectl, namespace: str) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Apply a job as a user does."""

    def apply(
        changes: dict[str, Any] | None = None,
        *options: str,
        base: dict[str, Any] = hrl.QUICKSTART_SPEC,
        name: str = "quickstart",
    ) -> subprocess.CompletedProcess[str]:
        manifest = {
            "apiVersion": "harborrl.dev/v1alpha1",
            "kind": "HarborRLJob",
            "metadata": {"name": name, "namespace": namespace},
            "spec": hrl.merged(base, changes or {}),
        }
        return kubectl("apply", "--filename", "-", *options, stdin=hrl.text(manifest))

    return apply


@pytest.fixture(scope="session")
def chart_roles(kubectl: Kubectl) -> str:
    """Manifests of the chart's roles, and the namespace in which the operator's own is."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "harborrl-system"}}
    kubectl.ok("apply", "--filename", "-", stdin=hrl.text(namespace))
    templates = ("-s", "templates/rbac-operator.yaml", "-s", "templates/rbac-jobs.yaml")
    command = [program("helm"), "template", "harborrl", str(ROOT / "charts" / "harborrl"), "--kube-version", "1.35.0"]
    command += ["--namespace", "harborrl-system", *templates]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: S603 - our own binary
