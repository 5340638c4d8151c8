"""docs/network.md, row by row, on a running job with policies enforced. A row that has no test here fails.

What must be closed is also shown to be there: each closed port is open to somebody.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from support.flow_table import rows
from support.kube import (
    DISRUPTION_BUDGETS,
    EVENTS,
    NETWORK_POLICIES,
    PODS,
    SERVICES,
    Kube,
    Manifest,
    is_going,
    name_of,
)
from support.kubectl import OPERATOR, SYSTEM, Kubectl
from support.probes import LISTEN, Spot, becomes, pod
from support.workspace import MARK, SANDBOXES, Workspace, example

pytestmark = [pytest.mark.cluster, pytest.mark.faults]

NAME = "guarded"
START_SECONDS = 300
AGENT, GATEWAY, SESSION, DASHBOARD, GCS, RAY_AGENT, PROBES = 30000, 30001, 30000, 8265, 6379, 52365, 8080


@dataclass(frozen=True)
class Place:
    address: str
    spot: Spot


@dataclass(frozen=True)
class Scene:
    """The job's pods, pods that are none of its, and addresses outside."""

    workspace: Workspace
    places: dict[str, Place]
    api: tuple[str, int]
    job: Manifest

    def connects(self, source: str, target: str, port: int) -> bool:
        return self.places[source].spot.connects(self.places[target].address, port)

    def reaches_api(self, source: str) -> bool:
        return self.places[source].spot.connects(*self.api)


@pytest.fixture(scope="module")
def stranger_namespace(kubectl: Kubectl, workspace: Workspace) -> Iterator[str]:
    name = f"{workspace.namespace}-x"
    kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": MARK}})
    yield name
    kubectl.ok("delete", "namespace", name, "--timeout=120s", timeout=130)


@pytest.fixture(scope="module")
def scene(kube: Kube, kubectl: Kubectl, workspace: Workspace, stranger_namespace: str) -> Iterator[Scene]:
    agents = {"agentServer.allowedAgents": ["bash", "mini-swe-agent"], "agentServer.sandbox.tools.image": ""}
    workspace.apply(example("job.yaml", {"trainer.config.numRollout": 500, **agents}, name=NAME))
    boxes = kubectl.within(SANDBOXES)
    try:
        workspace.until_sandboxes_run(NAME, timeout=START_SECONDS)  # so the session server listens
        job = workspace.job(NAME)
        theirs = {"harborrl.dev/job-uid": job["metadata"]["uid"]}
        made = {
            "preflight": (workspace.kubectl, pod("as-preflight", {**theirs, "harborrl.dev/role": "preflight"})),
            "version": (workspace.kubectl, pod("as-version", {**theirs, "harborrl.dev/role": "agent-server"})),
            "neighbour": (workspace.kubectl, pod("neighbour", {})),
            "stranger": (kubectl.within(stranger_namespace), pod("stranger", {"app": "prometheus"})),
            "outside": (kubectl.within(stranger_namespace), pod("outside", {}, LISTEN)),
            "sandbox": (boxes, pod(f"probe-{workspace.namespace}", {"harborrl.dev/role": "sandbox"})),
            "own": (boxes, pod(f"own-{workspace.namespace}", {**theirs, "harborrl.dev/role": "sandbox"})),
        }
        for where, manifest in made.values():
            where.apply(manifest)
        places = {name: _place(kube, where, name_of(it), "main") for name, (where, it) in made.items()}
        yield Scene(workspace, places | _own_places(kube, workspace), _api(kube), job)
    finally:
        ours = [f"{each}-{workspace.namespace}" for each in ("probe", "own")]
        boxes.ok("delete", "pod", *ours, "--ignore-not-found", "--wait=false")
        workspace.delete(NAME)
        workspace.until_held(lambda held: not held, NAME, timeout=90)


def _own_places(kube: Kube, workspace: Workspace) -> dict[str, Place]:
    chosen = {
        "head": ("ray.io/node-type=head", "ray-head"),
        "worker": ("ray.io/node-type=worker", "ray-worker"),
        "agent": ("harborrl.dev/role=agent-server", "agent-server"),
    }
    found = {}
    for place, (selector, container) in chosen.items():
        pods = kube.objects(PODS, workspace.namespace, f"harborrl.dev/job={NAME},{selector}")
        name = next(name_of(pod) for pod in pods if not is_going(pod))
        found[place] = _place(kube, workspace.kubectl, name, container)
    return found


def _place(kube: Kube, where: Kubectl, name: str, container: str) -> Place:
    def ready(pods: list[Manifest]) -> bool:
        return bool(_ready([pod for pod in pods if name_of(pod) == name]))

    pods = kube.until(ready, PODS, where.namespace, timeout=120)
    found = next(pod for pod in pods if name_of(pod) == name)
    return Place(found["status"]["podIP"], Spot(where, name, container))


def _ready(pods: list[Manifest]) -> list[Manifest]:
    return [p for p in pods if any(c["type"] == "Ready" and c["status"] == "True" for c in p["status"]["conditions"])]


def _api(kube: Kube) -> tuple[str, int]:
    service = kube.get(SERVICES, "kubernetes", "default")
    assert service is not None
    return service["spec"]["clusterIP"], service["spec"]["ports"][0]["port"]


def open_between(*flows: tuple[str, str, int]) -> Callable[[Scene], None]:
    def check(scene: Scene) -> None:
        for source, target, port in flows:
            assert becomes(partial(scene.connects, source, target, port)), f"{source} -> {target}:{port}"

    return check


def dns(scene: Scene) -> None:
    name = f"{NAME}-agent.{scene.workspace.namespace}.svc"
    for source in ("agent", "preflight", "head", "worker"):
        assert becomes(partial(scene.places[source].spot.resolves, name)), source


def api_from(source: str) -> Callable[[Scene], None]:
    def check(scene: Scene) -> None:
        assert becomes(lambda: scene.reaches_api(source))

    return check


def operator_port(scene: Scene) -> None:
    """Of the operator's pods as they are now: another setting of the chart replaces them."""
    stranger = scene.places["stranger"].spot
    pods = scene.workspace.kube.objects(PODS, SYSTEM, "app.kubernetes.io/name=harborrl")
    ready = _ready([one for one in pods if not is_going(one)])
    assert ready
    for one in ready:
        assert becomes(partial(stranger.connects, one["status"]["podIP"], PROBES)), name_of(one)


def probes(scene: Scene) -> None:
    """The kubelet's own verdict, minutes after the policies came: readiness would have been lost."""
    kube = scene.workspace.kube
    pods = kube.objects(PODS, scene.workspace.namespace, f"harborrl.dev/job={NAME}")
    ours = [p for p in pods if p["metadata"]["labels"].get("harborrl.dev/role") in ("agent-server", "trainer")]
    assert len(ours) == 3
    assert [name_of(pod) for pod in _ready(ours)] == [name_of(pod) for pod in ours]
    names = {name_of(pod) for pod in ours}
    events = [e for e in kube.objects(EVENTS, scene.workspace.namespace) if e["involvedObject"].get("name") in names]
    late = [e["message"] for e in events if e["reason"] == "Unhealthy" and "connection refused" not in e["message"]]
    assert not [message for message in late if "Liveness" in message]


def commands(scene: Scene) -> None:
    assert scene.places["sandbox"].spot.python("pass")


@contextmanager
def network_settings(kubectl: Kubectl, changes: dict[str, Any]) -> Iterator[None]:
    """The chart's `network` with changes, for a while."""
    system = kubectl.within(SYSTEM)
    path = 'jsonpath={.spec.template.spec.containers[0].env[?(@.name=="HARBORRL_NETWORK")].value}'
    before = system.ok("get", OPERATOR, "--output", path)

    def put(value: str) -> None:
        system.ok("set", "env", OPERATOR, f"HARBORRL_NETWORK={value}")
        system.ok("rollout", "status", OPERATOR, "--timeout=120s", timeout=130)

    put(json.dumps(json.loads(before) | changes))
    try:
        yield
    finally:
        put(before)


def metrics(scene: Scene) -> None:
    """Nobody scrapes until the chart names the scraper."""
    assert not scene.connects("stranger", "agent", AGENT)
    where = scene.places["stranger"].spot.kubectl
    there = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": where.namespace}}}
    scraper = there | {"podSelector": {"matchLabels": {"app": "prometheus"}}}
    with network_settings(where, {"monitoring": [scraper]}):
        assert becomes(lambda: scene.connects("stranger", "agent", AGENT))
        assert becomes(lambda: scene.connects("stranger", "head", PROBES))
        assert not scene.connects("outside", "agent", AGENT)
    assert becomes(lambda: not scene.connects("stranger", "agent", AGENT))


def egress(scene: Scene) -> None:
    outside = scene.places["outside"].address
    assert not scene.connects("head", "outside", 8000)
    rule = [{"cidr": f"{outside}/32", "ports": [8000]}]
    with egress_of_the_job(scene.workspace, rule):
        for source in ("head", "worker"):
            assert becomes(partial(scene.connects, source, "outside", 8000)), source
        assert not scene.connects("agent", "outside", 8000)
    assert becomes(lambda: not scene.connects("head", "outside", 8000))


@contextmanager
def egress_of_the_job(workspace: Workspace, rules: list[dict[str, Any]]) -> Iterator[None]:
    def put(value: list[dict[str, Any]]) -> None:
        patch = json.dumps({"spec": {"network": {"egress": value}}})
        workspace.kubectl.ok("patch", "hrl", NAME, "--type=merge", "--patch", patch)

    put(rules)
    try:
        yield
    finally:
        put([])


OPEN: dict[str, Callable[[Scene], None]] = {
    "dns": dns,
    "agent-api": api_from("agent"),
    "supervisor-api": api_from("head"),
    "trials": open_between(("head", "agent", AGENT), ("worker", "agent", AGENT)),
    "flush": open_between(("version", "agent", AGENT)),
    "health": open_between(("preflight", "agent", AGENT)),
    "sessions": open_between(("agent", "head", SESSION)),
    "gateway": open_between(("own", "agent", GATEWAY)),
    "ray": open_between(("worker", "head", GCS), ("head", "worker", RAY_AGENT)),
    "metrics": metrics,
    "egress": egress,
    "operator-port": operator_port,
    "probes": probes,
    "exec": commands,
}

CLOSED: dict[str, tuple[str, str, int]] = {
    "stranger-session": ("stranger", "head", SESSION),
    "stranger-dashboard": ("stranger", "head", DASHBOARD),
    "stranger-gcs": ("stranger", "head", GCS),
    "stranger-agent": ("stranger", "agent", AGENT),
    "neighbour-agent": ("neighbour", "agent", AGENT),
    "neighbour-dashboard": ("neighbour", "head", DASHBOARD),
    "agent-dashboard": ("agent", "head", DASHBOARD),
    "worker-dashboard": ("worker", "head", DASHBOARD),
    "preflight-session": ("preflight", "head", SESSION),
    "trainer-outside": ("head", "outside", 8000),
    "sandbox-session": ("sandbox", "head", SESSION),
    "sandbox-agent": ("own", "agent", AGENT),
    "stranger-gateway": ("stranger", "agent", GATEWAY),
    "other-gateway": ("sandbox", "agent", GATEWAY),
}
CLOSED_TO_THE_API_SERVER = {"worker-api": "worker", "sandbox-api": "sandbox"}


@pytest.mark.parametrize("flow", [row.flow for row in rows("Open")])
def test_is_open(scene: Scene, flow: str) -> None:
    assert flow in OPEN, f"docs/network.md has a row {flow} that nothing tests"
    OPEN[flow](scene)


@pytest.mark.parametrize("flow", [row.flow for row in rows("Closed")])
def test_is_closed(scene: Scene, flow: str) -> None:
    if flow in CLOSED:
        assert becomes(lambda: not scene.connects(*CLOSED[flow]))
        assert not scene.connects(*CLOSED[flow])
    elif flow in CLOSED_TO_THE_API_SERVER:
        source = CLOSED_TO_THE_API_SERVER[flow]
        assert becomes(lambda: not scene.reaches_api(source))
        assert not scene.reaches_api(source)
    else:
        assert flow == "sandbox-dns", f"docs/network.md has a row {flow} that nothing tests"
        name = f"{NAME}-agent.{scene.workspace.namespace}.svc"
        assert not scene.places["sandbox"].spot.resolves(name)


@pytest.mark.parametrize(("place", "port"), [("head", DASHBOARD), ("head", SESSION), ("head", GCS), ("agent", AGENT)])
def test_what_is_closed_to_others_is_there_for_itself(scene: Scene, place: str, port: int) -> None:
    assert scene.connects(place, place, port)


def test_what_lies_outside_is_there_for_its_neighbour(scene: Scene) -> None:
    assert becomes(lambda: scene.connects("stranger", "outside", 8000))


def test_a_drain_may_evict_no_pod_of_a_working_job(scene: Scene) -> None:
    # A pod of no controller is one more than its budget expects, so that one may go.
    scene.workspace.kubectl.ok("delete", "pod", "as-version", "--ignore-not-found")
    assert becomes(partial(_no_eviction_is_allowed, scene))
    for place in ("head", "worker", "agent"):
        spot = scene.places[place].spot
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": spot.pod}}
        path = f"/api/v1/namespaces/{scene.workspace.namespace}/pods/{spot.pod}/eviction"
        refused = spot.kubectl("create", "--raw", path, "--filename", "-", stdin=json.dumps(eviction))
        assert refused.returncode != 0
        assert "disruption budget" in refused.stderr


def _no_eviction_is_allowed(scene: Scene) -> bool:
    budgets = scene.workspace.kube.objects(DISRUPTION_BUDGETS, scene.workspace.namespace, f"harborrl.dev/job={NAME}")
    return [budget["status"]["disruptionsAllowed"] for budget in budgets] == [0, 0]


def test_switched_off_policies_leave_a_running_job_and_come_back(scene: Scene, kube: Kube, kubectl: Kubectl) -> None:
    selector = f"harborrl.dev/job={NAME}"
    namespace = scene.workspace.namespace
    with network_settings(kubectl, {"policies": False}):
        kube.until(lambda found: not found, NETWORK_POLICIES, namespace, selector=selector, timeout=60)
        assert becomes(lambda: scene.connects("stranger", "head", DASHBOARD))
    kube.until(lambda found: len(found) == 5, NETWORK_POLICIES, namespace, selector=selector, timeout=60)
    assert becomes(lambda: not scene.connects("stranger", "head", DASHBOARD))
