"""The chart's sandbox namespace takes the pods that the agent server makes: quota and defaults fit together."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from devcluster.controlplane import RunningControlPlane
from harbor.models.task.config import EnvironmentConfig

from harborrl_agent_server.sandboxes.cluster import kube_error
from harborrl_agent_server.sandboxes.images import SandboxConfig, resources_of
from harborrl_agent_server.sandboxes.pods import sandbox_pod
from harborrl_agent_server.sandboxes.refusals import refusal_of
from support.control_plane import admin_client
from support.programs import program

pytestmark = pytest.mark.api

CHART = Path(__file__).resolve().parents[2] / "charts" / "harborrl"
NAMESPACE = "chart-sandboxes"


@pytest.fixture(scope="module")
def pods(api_server: RunningControlPlane, kubectl: Any) -> Iterator[httpx.Client]:
    """A client on the pods of a namespace that the chart has made, once its quota is enforced."""
    chart = [program("helm"), "template", "h", str(CHART), "--kube-version", "1.35.0"]
    chart += ["--set", f"sandboxes.namespace={NAMESPACE}", "-s", "templates/sandboxes.yaml"]
    manifests = subprocess.run(chart, capture_output=True, text=True, check=True).stdout  # noqa: S603 - our own binary
    kubectl.ok("apply", "--filename", "-", stdin=manifests)
    wait = ("wait", "-n", NAMESPACE, "--timeout=120s", "--for")
    kubectl.ok(*wait, "jsonpath={.status.hard.pods}=512", "resourcequota/harborrl-sandboxes")
    kubectl.ok(*wait, "create", "serviceaccount/default")
    with admin_client(api_server) as client:
        client.base_url = httpx.URL(f"{api_server.url}/api/v1/namespaces/{NAMESPACE}/pods")
        yield client


def create(pods: httpx.Client, name: str, task: EnvironmentConfig) -> httpx.Response:
    config = SandboxConfig()
    pod = sandbox_pod(
        name=name,
        namespace=NAMESPACE,
        labels={},
        owner={"apiVersion": "v1", "kind": "ConfigMap", "name": "anchor", "uid": "0"},
        image="image:1",
        resources=resources_of(task, config),
        life_s=60,
        config=config,
    )
    return pods.post("", json=pod)


def test_a_task_that_states_no_resources_gets_the_charts(pods: httpx.Client) -> None:
    made = create(pods, "silent", EnvironmentConfig())
    assert made.status_code == httpx.codes.CREATED, made.text
    assert made.json()["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "100m", "memory": "256Mi"}


def test_a_task_that_states_some_of_them_keeps_those(pods: httpx.Client) -> None:
    made = create(pods, "half", EnvironmentConfig(memory_mb=64))
    assert made.status_code == httpx.codes.CREATED, made.text
    assert made.json()["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "100m", "memory": "64Mi"}


def test_without_those_defaults_the_quotas_refusal_says_what_to_state(pods: httpx.Client, kubectl: Any) -> None:
    kubectl.ok("delete", "limitrange", "harborrl-sandboxes", "-n", NAMESPACE)
    refused = create(pods, "unstated", EnvironmentConfig())
    refusal = refusal_of(kube_error(refused.status_code, refused.text))
    assert (refusal.reason, refusal.passes) == ("ResourcesUnstated", False)
    assert "agentServer.sandbox.defaults" in refusal.advice
