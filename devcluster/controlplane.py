"""etcd, API server and controller manager: the half of a cluster that needs neither root nor a node.

`start_control_plane` is for tests: several can run side by side, each in a folder of its own.
"""

import contextlib
import shutil
import ssl
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx

from devcluster import components
from devcluster.components import ControlPlane
from devcluster.credentials import write_credentials
from devcluster.errors import ComponentError
from devcluster.gobuild import CONTROL_PLANE, Binaries, ensure_binaries
from devcluster.ports import free_ports
from devcluster.processes import Supervisor, ends_with_us
from devcluster.progress import Reporter
from devcluster.settings import load_settings

LONGEST_SOCKET_FOLDER = 90
"""Bytes; the kernel allows 107 for the whole path of a unix socket."""

START_SECONDS = 90.0
"""The API server is ready in 4 s on a free machine; ten times that on one that compiles beside it."""


def wait_until(ready: Callable[[], bool], name: str, supervisor: Supervisor, seconds: float = START_SECONDS) -> None:
    """Returns when `ready()`; raises ComponentError, with the end of its log, if the program ends or time runs out."""
    deadline = time.monotonic() + seconds
    while not ready():
        log = supervisor.log_file(name)
        if supervisor.record(name) is None:
            raise ComponentError(name, "ended while starting", log, supervisor.log_tail(name))
        if time.monotonic() > deadline:
            raise ComponentError(name, f"was not ready after {seconds:.0f} s", log, supervisor.log_tail(name))
        time.sleep(0.1)


def answers(url: str, tls: ssl.SSLContext) -> bool:
    try:
        return httpx.get(url, verify=tls, timeout=5.0, trust_env=False).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


def admin_tls(pki: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
    context.load_cert_chain(pki / "admin.crt", pki / "admin.key")
    return context


def ensure_control_plane(plane: ControlPlane, binaries: Binaries, supervisor: Supervisor) -> None:
    """Starts what does not run and returns when the API server is ready and the controllers are healthy."""
    supervisor.ensure(components.etcd(plane, binaries))
    supervisor.ensure(components.apiserver(plane, binaries))
    tls = admin_tls(plane.pki)
    wait_until(lambda: answers(f"{plane.url}/readyz", tls), "kube-apiserver", supervisor)
    supervisor.ensure(components.controller_manager(plane, binaries))
    # It serves under a certificate that it signs itself, on loopback.
    unverified = ssl.create_default_context()
    unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
    health = f"https://127.0.0.1:{plane.controller_manager_port}/healthz"
    wait_until(lambda: answers(health, unverified), "kube-controller-manager", supervisor)


@dataclass(frozen=True)
class RunningControlPlane:
    """A control plane without nodes: objects are stored, defaulted, validated and collected; pods stay Pending."""

    kubeconfig: Path
    url: str
    kubectl: str
    supervisor: Supervisor
    directory: Path

    def kill(self, name: str) -> None:
        """Ends one component (`etcd`, `kube-apiserver` or `kube-controller-manager`) at once, for fault tests."""
        self.supervisor.stop(name, grace=0.0)

    def stop(self) -> None:
        """Ends everything and removes the folder; nothing is left."""
        for name in ("kube-controller-manager", "kube-apiserver", "etcd"):
            self.supervisor.stop(name, grace=2.0)
        shutil.rmtree(self.supervisor.run, ignore_errors=True)
        shutil.rmtree(self.directory, ignore_errors=True)


def start_control_plane(
    directory: Path, *, cache: Path | None = None, reporter: Reporter | None = None
) -> RunningControlPlane:
    """Starts a control plane on free loopback ports, with all its files in `directory`. Needs no root.

    Builds the programs into `cache` first if they are not there (minutes). Raises DownloadError, BuildError
    or ComponentError; after an error nothing runs, and nothing outlives the thread that called.
    """
    binaries = ensure_binaries(cache or load_settings().cache, CONTROL_PLANE, reporter or Reporter())
    directory.mkdir(parents=True, exist_ok=True)
    run = directory / "run"
    if len(str(run).encode()) > LONGEST_SOCKET_FOLDER:
        run = Path(tempfile.mkdtemp(prefix="harborrl-"))
    port, controller_manager_port = free_ports(2)
    plane = ControlPlane(
        directory=directory,
        address="127.0.0.1",
        port=port,
        controller_manager_port=controller_manager_port,
        services="10.157.8.0/24",
        pki=directory / "pki",
        config=directory / "config",
        run=run,
        kubelet=False,
    )
    supervisor = Supervisor(run, directory / "log", ends_with_us())
    kubeconfig = directory / "kubeconfig"
    running = RunningControlPlane(kubeconfig, plane.url, binaries.path("kubectl"), supervisor, directory)
    try:
        write_credentials(plane, "10.157.8.1", binaries.path("pki"), kubeconfig)
        ensure_control_plane(plane, binaries, supervisor)
    except BaseException:  # an interrupt too must leave no process behind
        for name in ("kube-controller-manager", "kube-apiserver", "etcd"):
            supervisor.stop(name, grace=0.0)
        raise
    return running


@contextlib.contextmanager
def control_plane(directory: Path, *, cache: Path | None = None) -> Iterator[RunningControlPlane]:
    """A control plane for the length of a `with` block."""
    running = start_control_plane(directory, cache=cache)
    try:
        yield running
    finally:
        running.stop()
