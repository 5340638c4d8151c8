"""The operator's passes against a real API server, garbage collector and Deployment controller; no kubelet."""

import json
import logging
from typing import Any

import pytest

from harborrl_operator.cluster import Cluster
from harborrl_operator.constants import Role
from harborrl_operator.sweeper import sweep
from support import hrl
from support.passes import (
    KIND,
    Submit,
    anchor_of,
    conditions,
    eventually,
    job_of,
    operator,
    report,
    report_success,
    set_status,
    walk_to_cluster,
)

pytestmark = pytest.mark.api


async def test_the_first_pass_starts_the_agent_server_and_says_so(
    cluster: Cluster, submit: Submit, namespace: str
) -> None:
    assert submit().returncode == 0
    await operator(cluster).reconcile(namespace, "quickstart")
    job = await job_of(cluster, namespace)
    assert job.status.phase == "StartingAgentServer"
    assert conditions(job)["Admitted"] == ("Unknown", "AwaitingPreflight")
    assert len(await cluster.find("Deployment", namespace)) == 1
    events = await cluster.find("Event", namespace, fields="involvedObject.kind=HarborRLJob")
    assert [event["reason"] for event in events] == ["Starting"]


async def test_a_second_pass_writes_nothing(cluster: Cluster, submit: Submit, namespace: str) -> None:
    submit()
    await operator(cluster).reconcile(namespace, "quickstart")

    async def versions() -> dict[str, str]:
        out = {}
        for kind in (KIND, "Service", "ConfigMap", "ServiceAccount", "RoleBinding"):
            for thing in await cluster.find(kind, namespace):
                out[f"{kind}/{thing['metadata']['name']}"] = thing["metadata"]["resourceVersion"]
        return out

    before = await versions()
    await operator(cluster).reconcile(namespace, "quickstart")
    assert await versions() == before


async def test_a_broken_child_is_repaired(kubectl: Any, cluster: Cluster, submit: Submit, namespace: str) -> None:
    submit()
    await operator(cluster).reconcile(namespace, "quickstart")
    kubectl.ok("delete", "service", "quickstart-trainer", "-n", namespace)
    await operator(cluster).reconcile(namespace, "quickstart")
    assert await cluster.get("Service", namespace, "quickstart-trainer") is not None


async def test_the_minimal_job_and_the_documented_example_are_admitted(
    kubectl: Any, cluster: Cluster, submit: Submit, namespace: str
) -> None:
    for role in ("models", "tasks", "checkpoints", "traces", "trials"):
        spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
        manifest = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": role}, "spec": spec}
        kubectl.ok("apply", "-n", namespace, "-f", "-", stdin=hrl.text(manifest))
    for name, base in (("minimal", hrl.MINIMAL_SPEC), ("glm47-tb2", hrl.DESIGN_SPEC)):
        assert submit(base=base, name=name).returncode == 0
        await operator(cluster).reconcile(namespace, name)
        assert (await job_of(cluster, namespace, name)).status.phase == "StartingAgentServer"


async def test_a_ray_cluster_is_created_once_and_left_alone(
    kubectl: Any, cluster: Cluster, submit: Submit, namespace: str
) -> None:
    submit()
    await walk_to_cluster(kubectl, cluster, namespace)
    made = await cluster.get("RayCluster", namespace, "quickstart-a1")
    assert made is not None
    await operator(cluster).reconcile(namespace, "quickstart")
    again = await cluster.get("RayCluster", namespace, "quickstart-a1")
    assert again is not None
    assert again["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    assert conditions(await job_of(cluster, namespace))["Admitted"] == ("True", "Admitted")


async def test_what_the_supervisor_wrote_survives_our_apply_and_reaches_status(
    kubectl: Any, cluster: Cluster, submit: Submit, namespace: str
) -> None:
    submit()
    await walk_to_cluster(kubectl, cluster, namespace)
    await report_success(kubectl, cluster, namespace)
    await operator(cluster).reconcile(namespace, "quickstart")
    job = await job_of(cluster, namespace)
    assert job.status.phase == "Succeeded"
    assert job.status.step == "1/3"
    assert await cluster.find("RayCluster", namespace) == []
    kept = await cluster.get("ConfigMap", namespace, "quickstart-progress")
    assert kept is not None
    assert "progress" in kept["data"]


async def test_deleting_the_job_removes_every_child_with_the_operator_absent(
    kubectl: Any, cluster: Cluster, submit: Submit, namespace: str
) -> None:
    submit()
    await walk_to_cluster(kubectl, cluster, namespace)
    selector = f"harborrl.dev/job-uid={(await job_of(cluster, namespace)).uid}"
    kubectl.ok("delete", "hrl", "quickstart", "-n", namespace)

    async def gone() -> bool:
        kinds = ("Deployment", "Service", "ConfigMap", "Pod", "RayCluster")
        return not [thing for kind in kinds for thing in await cluster.find(kind, namespace, selector)]

    await eventually(gone)
    accounts = [account["metadata"]["name"] for account in await cluster.find("ServiceAccount", namespace)]
    assert {"harborrl-agent-server", "harborrl-trainer"} <= set(accounts)
    assert await cluster.get("PersistentVolumeClaim", namespace, hrl.SETTINGS.default_claim) is not None


async def test_what_the_api_server_refuses_reaches_a_condition_and_is_written_once(
    kubectl: Any, cluster: Cluster, submit: Submit, namespace: str
) -> None:
    kubectl.ok("create", "quota", "none", "-n", namespace, "--hard=count/deployments.apps=0")

    async def quota_counts() -> bool:
        quotas = json.loads(kubectl.ok("get", "quota", "-n", namespace, "-o", "json"))["items"]
        return bool(quotas[0].get("status", {}).get("hard"))

    await eventually(quota_counts)
    submit()
    await operator(cluster).reconcile(namespace, "quickstart")
    first = await job_of(cluster, namespace)
    assert conditions(first)["AgentServerReady"] == ("False", "ApplyFailed")
    found = next(c for c in first.status.conditions if c.type == "AgentServerReady")
    assert "exceeded quota" in found.message
    await operator(cluster).reconcile(namespace, "quickstart")
    assert (await job_of(cluster, namespace)).status == first.status


async def test_a_missing_claim_is_named_and_the_job_goes_on_once_it_is_there(
    cluster: Cluster, submit: Submit, namespace: str
) -> None:
    submit({"storage": {"tasks": {"pvc": "later"}}})
    await operator(cluster).reconcile(namespace, "quickstart")
    job = await job_of(cluster, namespace)
    assert conditions(job)["Admitted"] == ("False", "ClaimNotFound")
    assert await cluster.find("Deployment", namespace) == []
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    meta = {"name": "later", "namespace": namespace}
    await cluster.create({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec})
    await operator(cluster).reconcile(namespace, "quickstart")
    assert (await job_of(cluster, namespace)).status.phase == "StartingAgentServer"


async def make_head(cluster: Cluster, kubectl: Any, namespace: str) -> None:
    """The head pod that KubeRay would make."""
    labels = {
        **(await job_of(cluster, namespace)).names.labels(Role.TRAINER, 1),
        "ray.io/node-type": "head",
    }
    spec = {"containers": [{"name": "ray-head", "image": "ray"}], "automountServiceAccountToken": False}
    meta = {"name": "quickstart-a1-head", "namespace": namespace, "labels": labels}
    await cluster.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    await set_status(kubectl, namespace, "pod", "quickstart-a1-head", {"phase": "Running", "conditions": [ready]})


async def test_a_suspend_asks_waits_releases_and_takes_its_request_away(
    kubectl: Any, cluster: Cluster, submit: Submit, namespace: str
) -> None:
    submit()
    await walk_to_cluster(kubectl, cluster, namespace)
    await make_head(cluster, kubectl, namespace)
    await report(kubectl, cluster, namespace, "RUNNING")
    await operator(cluster).reconcile(namespace, "quickstart")
    assert (await job_of(cluster, namespace)).status.phase == "Running"

    kubectl.ok("patch", "hrl", "quickstart", "-n", namespace, "--type=merge", "-p", '{"spec":{"suspend":true}}')
    await operator(cluster).reconcile(namespace, "quickstart")
    assert (await job_of(cluster, namespace)).status.phase == "Suspending"
    request = await cluster.get("ConfigMap", namespace, "quickstart-request")
    assert request is not None
    assert json.loads(request["data"]["request"])["stop"] == {"attempt": 1, "incarnation": 1}
    assert len(await cluster.find("RayCluster", namespace)) == 1

    await report(kubectl, cluster, namespace, "STOPPED")
    await operator(cluster).reconcile(namespace, "quickstart")
    assert await cluster.find("RayCluster", namespace) == []
    assert await cluster.get("ConfigMap", namespace, "quickstart-request") is None
    kubectl.ok("delete", "pod", "quickstart-a1-head", "-n", namespace, "--grace-period=0", "--force")

    async def is_suspended() -> bool:
        await operator(cluster).reconcile(namespace, "quickstart")
        return conditions(await job_of(cluster, namespace))["Suspended"] == ("True", "Suspended")

    await eventually(is_suspended)
    job = await job_of(cluster, namespace)
    assert (job.status.active_since, job.status.attempts[0].incarnations) == (None, 1)


async def test_an_anchor_goes_with_its_job_and_not_before(
    kubectl: Any, cluster: Cluster, submit: Submit, namespace: str
) -> None:
    submit()
    await cluster.create(anchor_of(await job_of(cluster, namespace), "job"))
    assert await sweep(cluster, hrl.SETTINGS) == 0
    kubectl.ok("delete", "hrl", "quickstart", "-n", namespace)
    assert submit().returncode == 0  # the same name again is another job
    assert await sweep(cluster, hrl.SETTINGS) == 1


async def test_an_anchor_goes_with_the_end_of_its_job(
    kubectl: Any, cluster: Cluster, submit: Submit, namespace: str
) -> None:
    submit()
    await cluster.create(anchor_of(await job_of(cluster, namespace), "job"))
    ended = '{"status": {"finishedAt": "2026-01-01T12:00:00Z"}}'
    kubectl.ok("patch", "hrl/quickstart", "-n", namespace, "--subresource=status", "--type=merge", "-p", ended)
    assert await sweep(cluster, hrl.SETTINGS) == 1


@pytest.mark.parametrize("phase", ["Refused", "Suspended", "Running", "Preflight"])
async def test_the_anchor_of_a_job_without_an_agent_server_goes_where_none_is_to_come(
    kubectl: Any, cluster: Cluster, submit: Submit, namespace: str, phase: str
) -> None:
    """Deleted while the operator is away such a job would leave it for as long."""
    submit()
    await cluster.create(anchor_of(await job_of(cluster, namespace), "job"))
    said = json.dumps({"status": {"phase": phase}})
    kubectl.ok("patch", "hrl/quickstart", "-n", namespace, "--subresource=status", "--type=merge", "-p", said)
    server = {"containers": [{"name": "server", "image": "server"}], "automountServiceAccountToken": False}
    labels = {"harborrl.dev/job": "quickstart", "harborrl.dev/role": "agent-server"}
    meta = {"name": "leaving", "namespace": namespace, "labels": labels}
    await cluster.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": server})
    assert await sweep(cluster, hrl.SETTINGS) == 0
    kubectl.ok("delete", "pod", "leaving", "-n", namespace)
    assert await sweep(cluster, hrl.SETTINGS) == (phase in {"Refused", "Suspended"})


async def test_the_anchor_of_an_agent_server_goes_with_its_pod_and_the_jobs_own_stays(
    kubectl: Any, cluster: Cluster, submit: Submit, namespace: str
) -> None:
    submit()
    job = await job_of(cluster, namespace)
    await cluster.create(anchor_of(job, "job"))
    above = await cluster.get("ConfigMap", "harborrl-sandboxes", f"{namespace}-job")
    assert above is not None
    below = anchor_of(job, "server")
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": f"{namespace}-job", "uid": above["metadata"]["uid"]}
    below["metadata"]["ownerReferences"] = [owner]
    await cluster.create(below)
    server = {"containers": [{"name": "server", "image": "server"}], "automountServiceAccountToken": False}
    meta = {"name": "agent-1", "namespace": namespace}
    await cluster.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": server})
    assert await sweep(cluster, hrl.SETTINGS) == 0
    kubectl.ok("delete", "pod", "agent-1", "-n", namespace)
    assert await sweep(cluster, hrl.SETTINGS) == 1
    assert await cluster.get("ConfigMap", "harborrl-sandboxes", f"{namespace}-job") is not None
    assert await cluster.get("ConfigMap", "harborrl-sandboxes", f"{namespace}-server") is None


async def test_the_charts_roles_suffice_for_a_whole_life(
    kubectl: Any, cluster: Cluster, submit: Submit, namespace: str, chart_roles: str
) -> None:
    kubectl.ok("apply", "--filename", "-", stdin=chart_roles)
    user = "system:serviceaccount:harborrl-system:harborrl-operator"
    limited = await Cluster.connect(str(kubectl.plane.kubeconfig), impersonate=user)

    async def rights_are_in_force() -> bool:
        answers = [
            kubectl("auth", "can-i", "list", kind, "-A", "--as", user) for kind in ("hrl", "rayclusters", "pods")
        ]
        return all(answer.stdout.strip() == "yes" for answer in answers)

    async def is_gone() -> bool:
        await operator(limited).reconcile(namespace, "quickstart")
        return await cluster.get(KIND, namespace, "quickstart") is None

    try:
        await eventually(rights_are_in_force)
        submit({"ttlSecondsAfterFinished": 0})
        await walk_to_cluster(kubectl, limited, namespace)
        assert conditions(await job_of(cluster, namespace))["Admitted"] == ("True", "Admitted")
        await report_success(kubectl, cluster, namespace)
        await operator(limited).reconcile(namespace, "quickstart")
        await sweep(limited, hrl.SETTINGS)
        await eventually(is_gone)
        denied = kubectl("auth", "can-i", "get", "secrets", "-A", "--as", user)
        assert denied.stdout.strip() == "no"
    finally:
        await limited.close()


async def test_the_value_of_a_secret_that_a_job_names_is_in_nothing_else(
    kubectl: Any, cluster: Cluster, submit: Submit, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    canary = "canary-7f3a9c"
    kubectl.ok("create", "secret", "generic", "keys", "-n", namespace, f"--from-literal=wandb={canary}")
    reference = {"secretKeyRef": {"name": "keys", "key": "wandb"}}
    named = {
        "trainer.env": [{"name": "WANDB_API_KEY", "valueFrom": reference}],
        "agentServer.adminSecretRef": {"name": "keys", "key": "wandb"},
    }
    with caplog.at_level(logging.DEBUG):
        assert submit(named).returncode == 0
        await walk_to_cluster(kubectl, cluster, namespace)
    kinds = "hrl,configmaps,deployments,replicasets,pods,services,rayclusters,rolebindings,serviceaccounts,events"
    everything = kubectl.ok("get", kinds, "-n", namespace, "-o", "json")
    assert '"name": "keys"' in everything
    assert everything.count('"kind": "RayCluster"') >= 1
    assert canary not in everything
    assert canary not in caplog.text
