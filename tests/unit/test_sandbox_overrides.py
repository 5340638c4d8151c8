"""`agentServer.sandbox.podOverrides` may change much of a sandbox, and nothing of what keeps an agent inside it."""

from typing import Any

import pytest

from harborrl_operator.sandbox_overrides import FORBIDDEN, OWN_CONTAINER, override_fault


def main(**fields: Any) -> dict[str, Any]:
    return {"containers": [{"name": "main", **fields}]}


@pytest.mark.parametrize("field", FORBIDDEN)
@pytest.mark.parametrize("value", [None, False, "x", {}], ids=str)
def test_a_field_of_the_servers_own_may_not_be_set_to_anything(field: str, value: Any) -> None:
    """Null takes away what the server closes, and false may be the weaker one."""
    assert f"{field} may not be set" in (override_fault({field: value}) or "")
    beside = {"initContainers": [{"name": "setup", field: value}]}
    assert f"initContainers.setup.{field} may not be set" in (override_fault(beside) or "")


@pytest.mark.parametrize("field", OWN_CONTAINER)
def test_what_runs_the_sandbox_may_be_set_in_other_containers_alone(field: str) -> None:
    assert f"containers.main.{field} may not be set" in (override_fault(main(**{field: "x"})) or "")
    assert override_fault({"initContainers": [{"name": "setup", field: "x"}]}) is None


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        ({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}, "volumes.v.hostPath may not be mounted"),
        ({"volumes": [{"name": "v", "secret": {"secretName": "s"}}]}, "volumes.v.secret"),
        ({"volumes": [{"name": "v", "projected": {"sources": []}}]}, "volumes.v.projected"),
        (main(ports=[{"containerPort": 1, "hostPort": 1}]), "containers.main.ports.hostPort"),
        (main(volumeDevices=[{"name": "d", "devicePath": "/d"}]), "containers.main.volumeDevices"),
        (main(env=[{"name": "K", "valueFrom": {"secretKeyRef": {}}}]), "containers.main.env.K reads a Secret"),
        (main(envFrom=[{"secretRef": {"name": "s"}}]), "containers.main.envFrom reads a Secret"),
        ({"containers": [{"image": "x"}]}, "containers must be a list of objects with a name each"),
        ({"containers": None}, "containers must be a list"),
    ],
    ids=str,
)
def test_what_leads_out_of_a_sandbox_is_refused_by_its_place(overrides: dict[str, Any], says: str) -> None:
    assert says in (override_fault(overrides) or "")


@pytest.mark.parametrize(
    "overrides",
    [
        {},
        {"dnsConfig": {"nameservers": ["10.0.0.10"]}, "affinity": {}, "runtimeClassName": "gvisor"},
        {"volumes": [{"name": "cache", "persistentVolumeClaim": {"claimName": "pip"}}]},
        main(env=[{"name": "A", "value": "b"}, "odd"], volumeMounts=[{"name": "cache", "mountPath": "/c"}], ports=3),
        {"volumes": 7},
    ],
    ids=str,
)
def test_what_stays_inside_may_be_set_and_what_is_no_pod_is_left_to_kubernetes(overrides: dict[str, Any]) -> None:
    assert override_fault(overrides) is None
