"""`helm test` on the real cluster: it passes, and where it fails the pod that it leaves says why.

A definition that is missing or old: tests/api/test_selftest.py.
"""

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from demo import release

from support.kube import JOBS, PODS, Kube, Manifest, name_of
from support.kubectl import Kubectl
from support.programs import program
from support.workspace import Workspace

pytestmark = pytest.mark.cluster

POD = "harborrl-test"
QUOTA: Manifest = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "no-jobs"},
    "spec": {"hard": {"count/harborrljobs.harborrl.dev": "0"}},
}


@pytest.fixture
def system(kubectl: Kubectl) -> Iterator[Kubectl]:
    """In the operator's namespace; what a failed test leaves there is removed."""
    system = kubectl.within(release.NAMESPACE)
    yield system
    system.ok("delete", "pod", POD, "--ignore-not-found")


def helm(kubectl: Kubectl, *arguments: str) -> subprocess.CompletedProcess[str]:
    where = ("--namespace", release.NAMESPACE, "--kubeconfig", kubectl.kubeconfig)
    return subprocess.run(  # noqa: S603 - our own binary
        [program("helm"), *arguments, *where], capture_output=True, text=True, check=False, timeout=180
    )


def hook_pod(kubectl: Kubectl) -> dict[str, Any]:
    """The pod of the release's test, as it was installed."""
    made = [thing for thing in yaml.safe_load_all(helm(kubectl, "get", "hooks", release.NAME).stdout) if thing]
    pod: dict[str, Any] = next(thing for thing in made if thing["kind"] == "Pod")
    return pod


def test_helm_test_passes_and_leaves_nothing_behind(system: Kubectl, kube: Kube) -> None:
    done = helm(system, "test", release.NAME, "--timeout", "2m")
    assert done.returncode == 0, f"{done.stdout}{done.stderr}{system('logs', POD).stdout}"
    assert "Phase:          Failed" not in done.stdout
    kube.until(lambda pods: POD not in map(name_of, pods), PODS, release.NAMESPACE, timeout=60)
    left = system.ok("get", "serviceaccount,role,rolebinding", POD, "--ignore-not-found", "--output=name")
    assert left == ""
    assert kube.objects(JOBS, release.NAMESPACE) == []


def test_helm_test_fails_where_no_job_may_be_made_and_its_pod_says_what_forbids_it(system: Kubectl) -> None:
    system.apply(QUOTA)
    try:
        done = helm(system, "test", release.NAME, "--timeout", "2m")
    finally:
        system.ok("delete", "resourcequota", name_of(QUOTA))
    assert done.returncode != 0
    assert POD in done.stderr
    said = system.ok("logs", POD)
    assert said.startswith("a sound job is refused: create HarborRLJob harborrl-selftest")
    assert "exceeded quota: no-jobs" in said


def test_without_its_role_the_test_says_which_account_lacks_which_right(
    kubectl: Kubectl, kube: Kube, workspace: Workspace
) -> None:
    pod = hook_pod(kubectl)
    spec = pod["spec"] | {"serviceAccountName": "default"}
    workspace.kubectl.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": POD}, "spec": spec})
    kube.until(
        lambda pods: any(pod["status"].get("phase") == "Failed" for pod in pods if name_of(pod) == POD),
        PODS,
        workspace.namespace,
        timeout=120,
    )
    said = workspace.kubectl.ok("logs", POD)
    workspace.kubectl.ok("delete", "pod", POD)
    account = f"system:serviceaccount:{workspace.namespace}:default"
    assert f'User "{account}" cannot create resource "harborrljobs"' in said
