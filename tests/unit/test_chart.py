"""The chart renders what the operator expects. It needs helm, which `python -m devcluster build` compiles."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from harborrl_operator.models import Settings
from harborrl_operator.names import AGENT_SERVER_ACCOUNT, SANDBOX_ROLE, TRAINER_ACCOUNT
from support.programs import program

CHART = Path(__file__).resolve().parents[2] / "charts" / "harborrl"


@pytest.fixture(scope="module")
def helm() -> str:
    return program("helm")


def run(helm: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([helm, *arguments], capture_output=True, text=True, check=False)  # noqa: S603 - our own binary


def render(helm: str, *arguments: str) -> list[dict[str, Any]]:
    done = run(helm, "template", "h", str(CHART), "--kube-version", "1.35.0", "--namespace", "system", *arguments)
    assert done.returncode == 0, done.stderr
    return [thing for thing in yaml.safe_load_all(done.stdout) if thing]


def test_lint_finds_nothing(helm: str) -> None:
    done = run(helm, "lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout


def test_every_setting_of_the_operator_is_set_by_the_chart(helm: str) -> None:
    deployment = next(thing for thing in render(helm) if thing["kind"] == "Deployment")
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    assert {e["name"] for e in container["env"]} == {
        f"HARBORRL_{name.upper()}" for name in Settings.__dataclass_fields__
    }
    literal = {e["name"]: e["value"] for e in container["env"] if "value" in e}
    assert Settings.from_environment(literal | {"HARBORRL_OPERATOR_NAMESPACE": "harborrl-system"}) == Settings()


def test_a_new_revision_restarts_the_operator_under_the_same_tag(helm: str) -> None:
    first, second = (
        [t for t in render(helm, "--set-string", f"operator.revision={r}") if t["kind"] == "Deployment"] for r in "12"
    )
    assert first[0]["spec"]["template"] != second[0]["spec"]["template"]


def test_the_operator_may_bind_exactly_the_roles_that_the_chart_makes_for_jobs(helm: str) -> None:
    roles = {thing["metadata"]["name"]: thing for thing in render(helm) if thing["kind"] == "ClusterRole"}
    bind = next(rule for rule in roles["harborrl-operator"]["rules"] if rule["verbs"] == ["bind"])
    assert set(bind["resourceNames"]) == {AGENT_SERVER_ACCOUNT, TRAINER_ACCOUNT, SANDBOX_ROLE}
    assert set(bind["resourceNames"]) <= roles.keys()


def test_no_role_reads_a_secret(helm: str) -> None:
    for thing in render(helm):
        for rule in thing.get("rules", []):
            assert "secrets" not in rule["resources"]
            assert "*" not in rule["resources"] + rule["verbs"]


def test_the_sandbox_namespace_is_open_to_sandboxes_and_closed_to_the_network(helm: str) -> None:
    rendered = render(helm, "--set", "sandboxes.namespace=boxes", "--set", "network.policies=false")
    things = {thing["kind"]: thing for thing in rendered}
    assert things["Namespace"]["metadata"]["labels"]["harborrl.dev/sandboxes"] == "true"
    assert things["NetworkPolicy"]["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    assert things["NetworkPolicy"]["metadata"]["namespace"] == "boxes"


def test_a_sandbox_with_a_network_reaches_names_and_the_outside_and_nothing_of_the_cluster(helm: str) -> None:
    rendered = render(helm, "--set", "sandboxes.denyNetwork=false", "--set", "network.policies=false")
    (policy,) = [thing["spec"] for thing in rendered if thing["kind"] == "NetworkPolicy"]
    outside, names = policy["egress"]
    assert "ingress" not in policy
    assert {"10.0.0.0/8", "169.254.0.0/16"} <= set(outside["to"][0]["ipBlock"]["except"])
    assert {port["port"] for port in names["ports"]} == {53}


def test_nobody_connects_to_the_operator_but_to_its_probe_port(helm: str) -> None:
    (policy,) = [
        t["spec"]
        for t in render(helm)
        if t["metadata"]["name"] == "harborrl-operator" and "podSelector" in t.get("spec", {})
    ]
    assert policy["ingress"] == [{"ports": [{"protocol": "TCP", "port": 8080}]}]


@pytest.mark.parametrize(
    "wrong", ["images.pullPolicy=Sometimes", "sandboxes.namespace=Not_a_name", "oops=1", "network.oops=1"]
)
def test_wrong_values_are_refused_by_the_schema(helm: str, wrong: str) -> None:
    assert run(helm, "template", "h", str(CHART), "--kube-version", "1.35.0", "--set", wrong).returncode != 0


def test_names_that_yaml_would_read_as_numbers_stay_names(helm: str) -> None:
    values = {
        "sandboxes.namespace": "123",
        "operator.priorityClassName": "1e3",
        "images.operator": "0x1f",
        "images.pullSecrets[0]": "456",
    }
    rendered = render(helm, *(word for item in values.items() for word in ("--set-string", "=".join(item))))
    named = {thing["kind"]: thing["metadata"] for thing in rendered}
    pod = next(thing for thing in rendered if thing["kind"] == "Deployment")["spec"]["template"]["spec"]
    account = next(thing for thing in rendered if thing["kind"] == "ServiceAccount")
    assert (named["Namespace"]["name"], named["ResourceQuota"]["namespace"]) == ("123", "123")
    assert (pod["priorityClassName"], pod["containers"][0]["image"]) == ("1e3", "0x1f")
    assert account["imagePullSecrets"] == [{"name": "456"}]
