"""The real cluster with the chart on it, and one namespace with the quickstart volume for all tests."""

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator

import pytest
from devcluster.programs import find_program
from devcluster.settings import load_settings

from harborrl_agent_server.sandboxes.cluster import Cluster
from support import target
from support.kube import Kube
from support.kubectl import OPERATOR, SYSTEM, Kubectl, operator_running
from support.sandbox_cluster import own_namespace
from support.workspace import MARK, ROOT, Workspace

TO_DO = "run `make test-e2e`, which starts the cluster, builds the images and installs the chart before its tests"


@pytest.fixture(scope="session")
def kubectl() -> Kubectl:
    """Fails with the command to run when cluster or chart are missing."""
    program = find_program("kubectl", load_settings())
    if program is None:
        pytest.fail(f"no kubectl here: {TO_DO}", pytrace=False)
    kubectl = Kubectl(program, target.kubeconfig(os.environ, _dev_clusters_kubeconfig))
    found = kubectl.within(SYSTEM)("get", "crd/harborrljobs.harborrl.dev", OPERATOR, "--request-timeout=10s")
    if found.returncode:
        pytest.fail(f"no cluster with HarborRL on it ({found.stderr.strip()}): {TO_DO}", pytrace=False)
    operator_running(kubectl)
    kubectl.ok("delete", "namespace", "--selector", ",".join(f"{k}={v}" for k, v in MARK.items()), timeout=180)
    return kubectl


@pytest.fixture(scope="session", autouse=True)
def _kubeconfig_for_all(kubectl: Kubectl) -> Iterator[None]:
    """What connects by itself finds the same cluster."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", kubectl.kubeconfig)
        yield


@pytest.fixture(scope="session")
def kube(kubectl: Kubectl) -> Iterator[Kube]:
    kube = Kube.connect(kubectl.kubeconfig)
    yield kube
    kube.close()


@pytest.fixture(scope="session")
def workspace(kubectl: Kubectl, kube: Kube) -> Iterator[Workspace]:
    workspace = Workspace.create(kube, kubectl)
    try:
        workspace.fill()
        yield workspace
    finally:
        workspace.remove()


@pytest.fixture(scope="module", autouse=True)
def _room_for_the_next(workspace: Workspace) -> Iterator[None]:
    """The checkpoints of all modules together are some 40 GB: a whole run filled its machine's disk."""
    yield
    workspace.make_room()


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """As agent servers speak to the API server."""
    cluster = await Cluster.connect()
    yield cluster
    await cluster.close()


@pytest.fixture
async def namespace(cluster: Cluster) -> AsyncIterator[str]:
    """For the sandboxes of one test."""
    async with own_namespace(cluster) as name:
        yield name


def _dev_clusters_kubeconfig() -> str:
    command = [sys.executable, "-m", "devcluster", "kubeconfig"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603 - our own module
