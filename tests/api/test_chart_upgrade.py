"""Helm brings the next CRD to a cluster in which jobs run, and takes neither CRD nor jobs away.

A chart's folder `crds/` would be installed once and never upgraded (docs/decisions/0024-crd-in-templates.md).
"""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from devcluster.controlplane import RunningControlPlane, control_plane

from support import hrl
from support.programs import program
from support.small_server import merged

pytestmark = [pytest.mark.api, pytest.mark.processes]

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "harborrl"
EARLIER_CRD = ROOT / "tests" / "data" / "upgrade" / "815a83a" / "crd.yaml"
SYSTEM = "harborrl-system"
NEW_PART = "network"
"""Of the spec; the earlier CRD does not know it."""


class Installation:
    """Helm and kubectl on a cluster of their own."""

    def __init__(self, plane: RunningControlPlane) -> None:
        self._plane = plane
        self._access = ["--kubeconfig", str(plane.kubeconfig), "--namespace", SYSTEM]

    def helm(self, *arguments: str) -> str:
        return _run([program("helm"), *arguments, *self._access])

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return _run([self._plane.kubectl, "--kubeconfig", str(self._plane.kubeconfig), *arguments], stdin)

    def parts_of_the_spec(self) -> set[str]:
        crd = json.loads(self.kubectl("get", "crd", "harborrljobs.harborrl.dev", "-o", "json"))
        schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        return set(schema["properties"]["spec"]["properties"])

    def job(self) -> dict[str, Any]:
        return dict(json.loads(self.kubectl("get", "hrl", "quickstart", "-n", "default", "-o", "json")))


def _run(command: list[str], stdin: str | None = None) -> str:
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=180)  # noqa: S603 - our own binaries
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    """A cluster that nobody else's CRD is in."""
    with control_plane(tmp_path / "cp") as plane:
        yield Installation(plane)


@pytest.fixture
def earlier_chart(tmp_path: Path) -> Path:
    chart = tmp_path / "earlier"
    shutil.copytree(CHART, chart)
    crd = yaml.safe_load(EARLIER_CRD.read_text())
    assert crd["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    (chart / "templates" / "crd.yaml").write_text(EARLIER_CRD.read_text())
    return chart


def test_an_upgrade_brings_the_crd_and_an_uninstall_leaves_the_jobs(
    installation: Installation, earlier_chart: Path
) -> None:
    installation.helm("install", "harborrl", str(earlier_chart), "--create-namespace")
    assert NEW_PART not in installation.parts_of_the_spec()
    meta = {"name": "quickstart", "namespace": "default"}
    job = {"apiVersion": "harborrl.dev/v1alpha1", "kind": "HarborRLJob", "metadata": meta, "spec": hrl.QUICKSTART_SPEC}
    installation.kubectl("wait", "--for=condition=Established", "crd/harborrljobs.harborrl.dev")
    installation.kubectl("create", "--filename", "-", stdin=hrl.text(job))
    before = installation.job()

    installation.helm("upgrade", "harborrl", str(CHART))
    assert NEW_PART in installation.parts_of_the_spec()
    after = installation.job()
    for field in ("uid", "generation"):
        assert after["metadata"][field] == before["metadata"][field]
    assert merged(after["spec"], before["spec"]) == after["spec"]  # nothing was lost, defaults were added

    installation.helm("uninstall", "harborrl")
    assert installation.job()["metadata"]["uid"] == before["metadata"]["uid"]
    # Sandboxes outlive the release, closed as before; the next one takes their namespace over.
    sandboxes = ("namespace/harborrl-sandboxes", "--output=jsonpath={.status.phase}")
    assert installation.kubectl("get", *sandboxes) == "Active"
    installation.kubectl("get", "networkpolicy/deny-all", "--namespace", "harborrl-sandboxes")
    installation.helm("install", "harborrl", str(CHART))
    assert installation.job()["metadata"]["uid"] == before["metadata"]["uid"]
