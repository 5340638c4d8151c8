"""A real API server for tests: etcd, kube-apiserver and the controller manager, without a node.

`tests/api/conftest.py` offers the fixture `api_server`. A test that kills components starts its own with
`devcluster.controlplane.control_plane(directory)`.
"""

from collections.abc import Iterator

import httpx
import pytest
from devcluster.controlplane import RunningControlPlane, admin_tls, control_plane


@pytest.fixture(scope="session")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningControlPlane]:
    """One control plane for the whole run; give each test a namespace of its own.

    Ready in about 5 s once the programs are built (`python -m devcluster build`, minutes).
    """
    with control_plane(tmp_path_factory.mktemp("cp")) as running:
        yield running


def admin_client(running: RunningControlPlane) -> httpx.Client:
    """A client with every right, for requests that need no more than HTTP and JSON."""
    return httpx.Client(base_url=running.url, verify=admin_tls(running.directory / "pki"), trust_env=False, timeout=60)
