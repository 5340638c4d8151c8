"""The operator's own account, with RBAC enforced: its rights suffice, and none is left over."""

import json
import secrets
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from devcluster.controlplane import RunningControlPlane

from harborrl_operator.cluster import Cluster
from harborrl_operator.models import Settings
from harborrl_operator.reconcile import Reconciler
from harborrl_operator.selftest import admit
from harborrl_operator.sweeper import sweep
from support import hrl
from support.fault_proxy import FaultProxy, fault_proxy
from support.operator_process import kubeconfig, operator_process, until
from support.programs import program
from support.simulated_life import JOB, STAGES, Life

pytestmark = pytest.mark.api

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 120.0

NO_CALLS = {
    ("bind", "clusterroles.rbac.authorization.k8s.io"): "asked by the API server when a binding is made",
    ("update", "harborrljobs.harborrl.dev/finalizers"): "asked by OwnerReferencesPermissionEnforcement",
    ("create", "leases.coordination.k8s.io"): "for an installation whose Lease somebody deleted",
    ("list", "workloads.kueue.x-k8s.io"): "read only while Kueue holds something back (tests/unit/test_fitting.py)",
    ("delete", "networkpolicies.networking.k8s.io"): "when policies are switched off under a running job",
    ("get", "pods"): "the agent server of an anchor (tests/api/test_operator.py), and a name that is taken",
}
"""Granted though no call of a life needs it, and why."""

DONE_WITHOUT = {
    ("list", "nodes"),
    ("get", "customresourcedefinitions.apiextensions.k8s.io"),
    ("get", "endpointslices.discovery.k8s.io"),
}
"""Asked for though a list of namespaces gives no such right: the verdict is then made without it."""

Right = tuple[str, str]
"""Verb, and resource as `Call` writes it."""


@dataclass
class Installation:
    """The chart's rights for one mode, and a proxy that records what is done with them."""

    system: str
    namespace: str
    settings: Settings
    rendered: list[dict[str, Any]]
    token: str

    def granted(self) -> set[Right]:
        names = {
            (thing["roleRef"]["kind"], thing["roleRef"]["name"], thing["metadata"].get("namespace"))
            for thing in self.rendered
            if thing["kind"].endswith("RoleBinding") and thing["subjects"][0]["name"] == "harborrl-operator"
        }
        rules = [
            rule
            for thing in self.rendered
            if (thing["kind"], thing["metadata"]["name"], thing["metadata"].get("namespace")) in names
            for rule in thing["rules"]
        ]
        return {
            (verb, _resource(resource, group))
            for rule in rules
            for group in rule["apiGroups"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
        }


def _resource(resource: str, group: str) -> str:
    name, _, subresource = resource.partition("/")
    return name + (f".{group}" if group else "") + (f"/{subresource}" if subresource else "")


class Admin:
    """kubectl with every right."""

    def __init__(self, plane: RunningControlPlane) -> None:
        self._command = [plane.kubectl, "--kubeconfig", str(plane.kubeconfig)]

    def __call__(self, *arguments: str, stdin: str | None = None) -> str:
        command = [*self._command, *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=180)  # noqa: S603 - our own binary
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(params=["everywhere", "listed"])
def installed(request: pytest.FixtureRequest, bare_plane: RunningControlPlane) -> Iterator[Installation]:
    mode = request.param
    unique = f"{mode}-{secrets.token_hex(3)}"
    admin, system, namespace = Admin(bare_plane), f"system-{unique}", f"rights-{unique}"
    listed = ["--set", f"watchNamespaces={{{namespace}}}"] if mode == "listed" else []
    command = [program("helm"), "template", "h", str(ROOT / "charts" / "harborrl"), "--kube-version", "1.35.0"]
    command += ["--namespace", system, "--set", "sandboxes.create=false", *listed]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: S603 - our own binary
    rendered = [thing for thing in yaml.safe_load_all(text) if thing]
    wanted = ("ServiceAccount", "Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding", "Lease")
    rights = [thing for thing in rendered if thing["kind"] in wanted and "helm.sh/hook" not in str(thing["metadata"])]
    for name in (system, namespace):
        admin("create", "namespace", name)
    admin("apply", "--filename", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": rights}))
    token = admin("create", "token", "harborrl-operator", "--namespace", system).strip()
    settings = replace(hrl.SETTINGS, operator_namespace=system, watch_namespaces=namespace if mode == "listed" else "")
    yield Installation(system, namespace, settings, rendered, token)
    for name in ("clusterrolebinding/harborrl-operator", "clusterrole/harborrl-operator"):
        admin("delete", name, "--ignore-not-found")


@pytest.fixture
async def proxy(bare_plane: RunningControlPlane) -> AsyncIterator[FaultProxy]:
    async with fault_proxy(bare_plane) as running:
        yield running


async def test_the_charts_rights_suffice_for_all_that_the_operator_does_and_none_is_left_over(
    installed: Installation, bare_cluster: Cluster, bare_plane: RunningControlPlane, proxy: FaultProxy, tmp_path: Path
) -> None:
    config = kubeconfig(tmp_path, proxy.url, installed.token)
    limited = await Cluster.connect(str(config))
    try:
        await live(installed, bare_cluster, limited)
        await run_process(installed, bare_cluster, config, tmp_path)
        await clean_up(installed, bare_cluster, limited, Admin(bare_plane))
    finally:
        await limited.close()
    used = {(call.verb, call.resource) for call in proxy.calls if call.resource}
    # An apply that makes its object is asked for both.
    used |= {("create", resource) for verb, resource in used if verb == "patch" and "/" not in resource}
    granted = installed.granted()
    assert used - granted - DONE_WITHOUT == set()
    assert granted - used - NO_CALLS.keys() == set()


async def live(installed: Installation, admin: Cluster, limited: Cluster) -> None:
    """A whole life, a second job of the same name over what the first left, and an hour that passes."""
    life = Life(admin, installed.namespace)
    await life.begin()
    for stage in STAGES:
        await stage.act(life)
        await pass_over(installed, limited, life)
        await pass_over(installed, limited, life)
        assert await stage.reached(life), stage.name
    await life.submit()
    await pass_over(installed, limited, life)
    await pass_over(installed, limited, life)
    await STAGES[1].act(life)
    await pass_over(installed, limited, life)
    life.passed += 3600
    await pass_over(installed, limited, life)


async def pass_over(installed: Installation, limited: Cluster, life: Life) -> None:
    await Reconciler(limited, installed.settings, life.now).reconcile(installed.namespace, JOB)


async def clean_up(installed: Installation, admin: Cluster, limited: Cluster, kubectl: Admin) -> None:
    """An anchor whose job is gone, and a binding whose namespace goes."""
    labels = {
        "harborrl.dev/role": "anchor",
        "harborrl.dev/job": "gone",
        "harborrl.dev/job-namespace": installed.namespace,
        "harborrl.dev/job-uid": "u",
    }
    anchor = f"anchor-{installed.namespace}"
    meta = {"name": anchor, "namespace": "harborrl-sandboxes", "labels": labels}
    await admin.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta})
    await sweep(limited, installed.settings)
    assert await admin.get("ConfigMap", "harborrl-sandboxes", anchor) is None
    binding = f"harborrl-sandboxes-{installed.namespace}"
    assert await admin.get("RoleBinding", "harborrl-sandboxes", binding) is not None
    kubectl("delete", "namespace", installed.namespace, "--wait=false")
    await sweep(limited, installed.settings)
    assert await admin.get("RoleBinding", "harborrl-sandboxes", binding) is None


async def run_process(installed: Installation, admin: Cluster, config: Path, folder: Path) -> None:
    """Watches, election and heartbeat, as a pod does them; a listed namespace that is gone keeps nobody waiting."""
    listed = installed.settings.watch_namespaces
    async with AsyncExitStack() as stack:
        process = await stack.enter_async_context(
            operator_process(
                folder,
                config,
                namespace=installed.system,
                watch_namespaces=f"absent,{listed}" if listed else "",
            )
        )
        await until(process.leads, START_SECONDS, "it leads")
        meta = {"name": "seen", "namespace": installed.namespace}
        job = {"apiVersion": "harborrl.dev/v1alpha1", "kind": "HarborRLJob", "metadata": meta}
        await admin.create(job | {"spec": hrl.QUICKSTART_SPEC})

        async def is_judged() -> bool:
            found = await admin.get("HarborRLJob", installed.namespace, "seen")
            return bool(found and (found.get("status") or {}).get("phase"))

        await until(is_judged, START_SECONDS, "it works")


async def test_what_helm_test_asks_is_answered_by_a_real_api_server(bare_cluster: Cluster) -> None:
    assert await admit(bare_cluster, "default") is None


async def test_the_operators_pods_are_admitted_where_pod_security_is_restricted(
    installed: Installation, bare_plane: RunningControlPlane
) -> None:
    admin, level = Admin(bare_plane), "pod-security.kubernetes.io/enforce"
    admin("label", "namespace", installed.system, f"{level}=restricted")
    deployment = next(thing for thing in installed.rendered if thing["kind"] == "Deployment")
    hook = next(thing for thing in installed.rendered if thing["kind"] == "Pod")
    pods = {
        "operator": {"metadata": {"name": "operator"}, "spec": deployment["spec"]["template"]["spec"]},
        "hook": {"metadata": {"name": "hook"}, "spec": hook["spec"] | {"serviceAccountName": "harborrl-operator"}},
    }
    for pod in pods.values():
        text = json.dumps({"apiVersion": "v1", "kind": "Pod", **pod})
        admin("create", "--dry-run=server", "--namespace", installed.system, "--filename", "-", stdin=text)
