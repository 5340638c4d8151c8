"""API server and operator over the same specs: what one lets in the other can plan, and its objects are taken.

Each spec is a creation in dry run: all that admission does, schema and CEL rules, and nothing stored. No library
evaluates CEL as the API server does, so none stands in for it.
"""

import asyncio
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings

from harborrl_operator.cluster import Cluster
from harborrl_operator.models import HarborRLJob
from harborrl_operator.transport import Answer, Request, Send
from support import hrl
from support.control_plane import admin_client
from support.mutants import FIELDS, FREE_FORM, mutants
from support.whole_life import whole_life

pytestmark = pytest.mark.api

JOBS = "/apis/harborrl.dev/v1alpha1/namespaces/research/harborrljobs"
ROOTS = {path[0] for path, _ in FIELDS}
CASES = int(os.environ.get("HARBORRL_FUZZ_CASES", "2000"))
WHOLE_CASES = CASES // 25
"""Whose objects are sent as well, some 20 each."""

MADE = {"ConfigMap", "Deployment", "NetworkPolicy", "Pod", "PodDisruptionBudget", "RayCluster"}
MADE |= {"Role", "RoleBinding", "Service", "ServiceAccount"}

NAMES = frozenset(path for path, _ in FIELDS if path[-1] in ("priorityClassName", "serviceAccountName"))
"""Of what a pod is refused without, and is not there."""


@pytest.fixture(scope="module")
def client(kubectl: Any) -> Iterator[httpx.Client]:
    kubectl.ok("create", "namespace", "research")
    for account in ("harborrl-trainer", "harborrl-agent-server"):  # a pod is refused without its own
        kubectl.ok("create", "serviceaccount", account, "--namespace", "research")
    with admin_client(kubectl.plane) as connected:
        yield connected


@pytest.fixture(scope="module")
def apply(kubectl: Any) -> Iterator[Callable[[dict[str, Any]], None]]:
    """As the operator sends it, but stored nowhere; raises ClusterError for what is refused."""

    def dry(send: Send) -> Send:
        async def sent(request: Request) -> Answer:
            checked = (("dryRun", "All"), ("fieldValidation", "Strict"))
            return await send(replace(request, query=(*request.query, *checked)))

        return sent

    with asyncio.Runner() as runner:
        cluster = runner.run(Cluster.connect(str(kubectl.plane.kubeconfig)))
        sender = cluster.through(dry)
        yield lambda thing: runner.run(_apply(sender, thing))
        runner.run(cluster.close())


async def _apply(cluster: Cluster, thing: dict[str, Any]) -> None:
    await cluster.apply(thing)


def create(client: httpx.Client, spec: dict[str, Any]) -> httpx.Response:
    """Judged like a creation, stored nowhere."""
    meta = {"name": "quickstart", "namespace": "research"}
    body = {"apiVersion": "harborrl.dev/v1alpha1", "kind": "HarborRLJob", "metadata": meta, "spec": spec}
    return client.post(JOBS, params={"dryRun": "All", "fieldValidation": "Strict"}, json=body)


def let_in(answer: httpx.Response) -> HarborRLJob:
    """With the defaults that the API server has filled in."""
    return hrl.job(base=answer.json()["spec"])


def test_what_the_api_server_lets_in_is_planned_and_what_it_refuses_is_named(client: httpx.Client) -> None:
    seen: Counter[str] = Counter()

    @given(mutants())
    @settings(max_examples=CASES, deadline=None, suppress_health_check=list(HealthCheck))
    def judge(spec: dict[str, Any]) -> None:
        answer = create(client, spec)
        if answer.status_code == httpx.codes.CREATED:
            seen["runs" if len(whole_life(let_in(answer))) > 2 else "refused by the operator"] += 1
            return
        seen["refused by the API server"] += 1
        assert answer.status_code in (httpx.codes.UNPROCESSABLE_ENTITY, httpx.codes.BAD_REQUEST), answer.text
        said = answer.json()["message"]
        assert re.search(r"\bspec\b", said), said
        assert any(root in said for root in ROOTS), said

    judge()
    assert seen.total() >= CASES
    # No side of the claim is empty.
    assert all(seen[end] > CASES / 50 for end in ("runs", "refused by the operator", "refused by the API server")), seen


def test_every_planned_object_is_taken_by_the_api_server(
    client: httpx.Client, apply: Callable[[dict[str, Any]], None]
) -> None:
    sent: Counter[str] = Counter()

    @given(mutants(junk=False, but=FREE_FORM | NAMES))
    @settings(max_examples=WHOLE_CASES, deadline=None, suppress_health_check=list(HealthCheck))
    def send(spec: dict[str, Any]) -> None:
        answer = create(client, {**spec, "suspend": False})
        if answer.status_code != httpx.codes.CREATED:
            return
        objects = {hrl.text(thing): thing for decided in whole_life(let_in(answer)) for thing in decided.apply}
        for thing in objects.values():
            if thing["metadata"]["namespace"] in ("research", "harborrl-sandboxes"):  # others were drawn
                apply(thing)
                sent[thing["kind"]] += 1

    send()
    assert sent.keys() == MADE
    assert sent["RayCluster"] > WHOLE_CASES / 10
