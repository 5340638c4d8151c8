"""A helm that is killed while it waits locks its release; what the demo does about it, on Helm's real records."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from demo import release
from demo.shell import Shell
from devcluster.controlplane import RunningControlPlane

from support.programs import program

pytestmark = [pytest.mark.api, pytest.mark.processes]

NEVER_READY = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: waits}
spec:
  selector: {matchLabels: {app: waits}}
  template:
    metadata: {labels: {app: waits}}
    spec: {containers: [{name: waits, image: none}]}
"""
"""No node is there to run it, so `helm --wait` waits."""


def kubectl(plane: RunningControlPlane, *arguments: str) -> None:
    command = [plane.kubectl, "--kubeconfig", str(plane.kubeconfig), "--namespace", release.NAMESPACE, *arguments]
    subprocess.run(command, check=True, timeout=180)  # noqa: S603 - our own binary


@pytest.fixture
def helm(api_server: RunningControlPlane, tmp_path: Path) -> Iterator[list[str]]:
    """The command that installs a small chart under the product's name; what it leaves is removed."""
    (tmp_path / "templates").mkdir()
    (tmp_path / "Chart.yaml").write_text("apiVersion: v2\nname: small\nversion: 0.1.0\n")
    (tmp_path / "templates" / "deployment.yaml").write_text(NEVER_READY)
    (tmp_path / "namespace.yaml").write_text(
        f"apiVersion: v1\nkind: Namespace\nmetadata: {{name: {release.NAMESPACE}}}\n"
    )
    kubectl(api_server, "apply", "--filename", str(tmp_path / "namespace.yaml"))  # other tests may have made it
    access = ["--kubeconfig", str(api_server.kubeconfig), "--namespace", release.NAMESPACE]
    yield [program("helm"), "upgrade", "--install", release.NAME, str(tmp_path), *access]
    subprocess.run([program("helm"), "uninstall", release.NAME, *access], check=True, timeout=180)  # noqa: S603 - our own binary


def test_a_release_that_a_killed_helm_locked_can_be_installed_again(
    api_server: RunningControlPlane, helm: list[str]
) -> None:
    with subprocess.Popen([*helm, "--wait"]) as killed:  # noqa: S603 - our own binary
        record = f"secret/sh.helm.release.v1.{release.NAME}.v1"
        kubectl(api_server, "wait", "--for=create", record, "--timeout=120s")
        killed.kill()
    locked = subprocess.run(helm, capture_output=True, text=True, check=False)  # noqa: S603 - same
    assert "another operation" in locked.stderr
    shell = Shell({**os.environ, "KUBECONFIG": str(api_server.kubeconfig)})
    release.forget_interrupted(shell, api_server.kubectl)
    release.forget_interrupted(shell, api_server.kubectl)
    done = subprocess.run(helm, capture_output=True, text=True, check=False)  # noqa: S603 - same
    assert done.returncode == 0, done.stderr
    assert "STATUS: deployed" in done.stdout
