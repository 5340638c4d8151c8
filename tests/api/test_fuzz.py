"""API server and operator over the same specs: what one lets in the other can plan, and its objects are taken."""

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings

from harborrl_operator.models import parse_job
from harborrl_operator.observed import Surroundings
from harborrl_operator.plan import plan
from support import hrl
from support.control_plane import admin_client
from support.mutants import FIELDS, FREE_FORM, mutants

pytestmark = pytest.mark.api

JOBS = "/apis/harborrl.dev/v1alpha1/namespaces/default/harborrljobs"
ROOTS = {path[0] for path, _ in FIELDS}

PATHS = {
    "ConfigMap": "/api/v1/namespaces/{}/configmaps/{}",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments/{}",
    "Pod": "/api/v1/namespaces/{}/pods/{}",
    "RayCluster": "/apis/ray.io/v1/namespaces/{}/rayclusters/{}",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles/{}",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings/{}",
    "Service": "/api/v1/namespaces/{}/services/{}",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts/{}",
}


@pytest.fixture(scope="module")
def client(kubectl: Any) -> Iterator[httpx.Client]:
    for account in ("harborrl-trainer", "harborrl-agent-server"):  # a pod is refused without its own
        kubectl.ok("create", "serviceaccount", account, "--namespace", "default")
    with admin_client(kubectl.plane) as connected:
        yield connected


def create(client: httpx.Client, spec: dict[str, Any]) -> httpx.Response:
    """Judged like a creation, stored nowhere."""
    meta = {"name": "fuzz", "namespace": "default"}
    body = {"apiVersion": "harborrl.dev/v1alpha1", "kind": "HarborRLJob", "metadata": meta, "spec": spec}
    return client.post(JOBS, params={"dryRun": "All", "fieldValidation": "Strict"}, json=body)


def planned(stored: dict[str, Any]) -> list[dict[str, Any]]:
    """All that the passes up to the RayCluster apply."""
    job = parse_job(stored)
    claims = {name: hrl.claim(name) for name in _claims(job.spec.storage)}
    seen: dict[str, Any] = {"claims": claims, "deployment": hrl.deployment(), "surroundings": Surroundings(jobs=(job,))}
    decided = plan(job, hrl.world(**seen), hrl.SETTINGS, hrl.NOW)
    assert decided.status.conditions
    if decided.status.phase != "Preflight":
        return []
    objects = list(decided.apply)
    pod = hrl.preflight_pod(job, exit_code=0, message=hrl.PASSED)
    for _ in range(2):
        job = hrl.then(job, decided)
        decided = plan(job, hrl.world(**seen, preflight_pod=pod), hrl.SETTINGS, hrl.NOW)
    return [*objects, *decided.apply]


def _claims(storage: Any) -> list[str]:
    named = (getattr(storage, role) for role in ("models", "tasks", "checkpoints", "traces", "trials"))
    return [*(volume.pvc for volume in named if volume), "harborrl-data"]


@given(mutants())
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
def test_what_the_api_server_lets_in_is_planned_and_what_it_refuses_is_named(
    client: httpx.Client, spec: dict[str, Any]
) -> None:
    answer = create(client, spec)
    if answer.status_code == httpx.codes.CREATED:
        planned(answer.json())
        return
    assert answer.status_code in (httpx.codes.UNPROCESSABLE_ENTITY, httpx.codes.BAD_REQUEST), answer.text
    said = answer.json()["message"]
    assert re.search(r"\bspec\b", said), said
    assert any(root in said for root in ROOTS), said


@given(mutants(junk=False, but=FREE_FORM))
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_planned_object_is_taken_by_the_api_server(client: httpx.Client, spec: dict[str, Any]) -> None:
    answer = create(client, {**spec, "suspend": False})
    if answer.status_code != httpx.codes.CREATED:
        return
    for thing in planned(answer.json()):
        meta = thing["metadata"]
        if meta["namespace"] not in ("default", "harborrl-sandboxes"):
            continue  # a sandbox namespace that was drawn and does not exist
        path = PATHS[thing["kind"]].format(meta["namespace"], meta["name"])
        query = {"dryRun": "All", "force": "true", "fieldManager": "harborrl-operator", "fieldValidation": "Strict"}
        done = client.patch(path, params=query, json=thing, headers={"Content-Type": "application/apply-patch+yaml"})
        assert done.is_success, f"{thing['kind']} {meta['name']}: {done.json()['message']}"
