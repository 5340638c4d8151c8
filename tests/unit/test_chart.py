"""The chart renders what the operator expects. It needs helm, which `python -m devcluster build` compiles."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from harborrl_operator import metrics
from harborrl_operator.constants import GATEWAY_PORT
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
        *(f"HARBORRL_{name.upper()}" for name in Settings.__dataclass_fields__),
        "POD_NAME",
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
    rules = [rule for rule in roles["harborrl-operator"]["rules"] if "bind" in rule["verbs"]]
    bound = {name for rule in rules for name in rule["resourceNames"]}
    assert bound == {AGENT_SERVER_ACCOUNT, TRAINER_ACCOUNT, SANDBOX_ROLE}
    assert bound <= roles.keys()


def test_no_role_reads_a_secret(helm: str) -> None:
    for thing in render(helm):
        for rule in thing.get("rules", []):
            assert "secrets" not in rule["resources"]
            assert "*" not in rule["resources"] + rule["verbs"]


def test_the_sandbox_namespace_is_open_to_sandboxes_and_closed_to_the_network(helm: str) -> None:
    rendered = render(helm, "--set", "sandboxes.namespace=boxes", "--set", "network.policies=false")
    things = {(thing["kind"], thing["metadata"]["name"]): thing for thing in rendered}
    assert things["Namespace", "boxes"]["metadata"]["labels"]["harborrl.dev/sandboxes"] == "true"
    closed = things["NetworkPolicy", "deny-all"]
    assert closed["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    assert closed["metadata"]["namespace"] == "boxes"


@pytest.mark.parametrize("watched", [(), ("--set", "watchNamespaces={a,b}")])
def test_sandboxes_reach_the_gateways_of_agent_servers_and_no_other_port_of_them(
    helm: str, watched: tuple[str, ...]
) -> None:
    things = {(thing["kind"], thing["metadata"]["name"]): thing for thing in render(helm, *watched)}
    spec = things["NetworkPolicy", "gateway"]["spec"]
    (rule,) = spec["egress"]
    assert (spec["policyTypes"], rule["ports"]) == (["Egress"], [{"protocol": "TCP", "port": GATEWAY_PORT}])
    (servers,) = rule["to"]
    assert servers["podSelector"] == {"matchLabels": {"harborrl.dev/role": "agent-server"}}
    named = [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["a", "b"]}]
    assert servers["namespaceSelector"] == ({"matchExpressions": named} if watched else {})


def test_a_sandbox_whose_task_restricts_its_network_is_let_out_by_no_policy_of_the_chart(helm: str) -> None:
    """Policies add up: the agent server's own, for pods with this label, could take nothing back."""
    rendered = [t for t in render(helm, "--set", "sandboxes.denyNetwork=false") if t["kind"] == "NetworkPolicy"]
    letting_out = [t["spec"] for t in rendered if t["spec"].get("egress") and "sandboxes" in t["metadata"]["namespace"]]
    assert len(letting_out) == 2
    for spec in letting_out:
        assert spec["podSelector"] == {
            "matchExpressions": [{"key": "harborrl.dev/network", "operator": "DoesNotExist"}]
        }


SANDBOX_RIGHTS = {
    "pods": {"create", "get", "list", "watch", "patch", "delete"},
    "pods/exec": {"create", "get"},
    "events": {"list"},
    "configmaps": {"create", "get", "delete"},
    "networkpolicies": {"create", "list", "patch", "delete"},
}
"""What the agent server calls in a sandbox namespace (docs/agent-server.md, "Sandboxes")."""


def test_agent_servers_have_the_rights_that_they_use_and_no_other(helm: str) -> None:
    (role,) = [t for t in render(helm) if (t["kind"], t["metadata"]["name"]) == ("ClusterRole", SANDBOX_ROLE)]
    given = {resource: set(rule["verbs"]) for rule in role["rules"] for resource in rule["resources"]}
    assert given == SANDBOX_RIGHTS
    assert len(role["rules"]) == len(given)
    page = (CHART.parents[1] / "docs" / "agent-server.md").read_text()
    needs = page[page.index("Needs, in the sandbox namespace") : page.index("(the chart's ClusterRole")]
    for resource, verbs in SANDBOX_RIGHTS.items():
        assert f"`{resource}`" in needs
        assert all(verb in needs for verb in verbs)


@pytest.mark.parametrize(("claims", "verbs"), [("false", []), ("true", ["create", "get", "list", "watch", "delete"])])
def test_agent_servers_may_claim_sandboxes_only_where_the_chart_says_so(
    helm: str, claims: str, verbs: list[str]
) -> None:
    things = render(helm, "--set", f"sandboxes.agentSandbox={claims}")
    (role,) = [t for t in things if (t["kind"], t["metadata"]["name"]) == ("ClusterRole", SANDBOX_ROLE)]
    theirs = {group for rule in role["rules"] for group in rule["apiGroups"] if group.endswith("agents.x-k8s.io")}
    assert len(theirs) == (2 if verbs else 0)
    assert [rule["verbs"] for rule in role["rules"] if rule["resources"] == ["sandboxclaims"]] == (
        [verbs] if verbs else []
    )
    literal = {
        e["name"]: e.get("value") for e in deployment_of(things)["spec"]["template"]["spec"]["containers"][0]["env"]
    }
    given = {name: value for name, value in literal.items() if value is not None}
    assert Settings.from_environment(given).agent_sandbox is (claims == "true")


def test_an_empty_image_of_the_chart_is_none_where_there_may_be_none(helm: str) -> None:
    things = render(helm, "--set", "images.tools=", "--set", "images.miles=")
    env = deployment_of(things)["spec"]["template"]["spec"]["containers"][0]["env"]
    settings = Settings.from_environment({e["name"]: e["value"] for e in env if "value" in e})
    assert (settings.tools_image, settings.miles_image) == ("", "")


def test_a_sandbox_with_a_network_reaches_names_and_the_outside_and_nothing_of_the_cluster(helm: str) -> None:
    rendered = render(helm, "--set", "sandboxes.denyNetwork=false", "--set", "network.policies=false")
    named = {thing["metadata"]["name"]: thing["spec"] for thing in rendered if thing["kind"] == "NetworkPolicy"}
    assert named.keys() == {"deny-all", "gateway", "outside-only"}
    policy = named["outside-only"]
    outside, names = policy["egress"]
    assert "ingress" not in policy
    assert {"10.0.0.0/8", "169.254.0.0/16"} <= set(outside["to"][0]["ipBlock"]["except"])
    assert {port["port"] for port in names["ports"]} == {53}


@pytest.mark.parametrize("deny", ["true", "false"])
def test_running_sandboxes_outlive_the_release_and_stay_closed(helm: str, deny: str) -> None:
    rendered = render(helm, "--set", "network.policies=false", "--set", f"sandboxes.denyNetwork={deny}")
    policy = "helm.sh/resource-policy"
    kept = {
        f"{thing['kind']}/{thing['metadata']['name']}"
        for thing in rendered
        if thing["metadata"].get("annotations", {}).get(policy) == "keep"
    }
    # Not outside-only: kept beside a later deny-all, it would go on to let sandboxes out.
    crd = "CustomResourceDefinition/harborrljobs.harborrl.dev"
    assert kept == {crd, "Namespace/harborrl-sandboxes", "NetworkPolicy/deny-all"}


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


def test_the_pods_of_the_release_pull_with_its_secrets(helm: str) -> None:
    rendered = render(helm, "--set", "images.pullSecrets={one,two}")
    accounts = {t["metadata"]["name"]: t for t in rendered if t["kind"] == "ServiceAccount"}
    users = [t for t in rendered if t["kind"] == "Pod"] + [
        t["spec"]["template"] for t in rendered if "replicas" in t.get("spec", {})
    ]
    used = {pod["spec"]["serviceAccountName"] for pod in users}
    assert used == {"harborrl-operator", "harborrl-test"}
    for name in used:
        assert accounts[name]["imagePullSecrets"] == [{"name": "one"}, {"name": "two"}]


def test_with_a_list_of_namespaces_the_operator_has_rights_in_them_and_none_on_the_cluster(helm: str) -> None:
    things = render(helm, "--set", "watchNamespaces={a,b}")
    bound = [
        (thing["kind"], thing["metadata"].get("namespace"))
        for thing in things
        if thing["kind"].endswith("RoleBinding") and thing["subjects"][0]["name"] == "harborrl-operator"
    ]
    assert sorted(bound) == [(("RoleBinding"), name) for name in ("a", "b", "harborrl-sandboxes", "system")]
    container = deployment_of(things)["spec"]["template"]["spec"]["containers"][0]
    assert {"name": "HARBORRL_WATCH_NAMESPACES", "value": "a,b"} in container["env"]


@pytest.mark.parametrize(("replicas", "budgets"), [(1, 0), (2, 1)])
def test_two_operators_are_drained_one_after_the_other(helm: str, replicas: int, budgets: int) -> None:
    things = render(helm, "--set", f"operator.replicas={replicas}")
    assert sum(thing["kind"] == "PodDisruptionBudget" for thing in things) == budgets
    assert deployment_of(things)["spec"]["replicas"] == replicas


def test_monitoring_objects_are_made_only_when_asked_for(helm: str) -> None:
    kinds = {"ServiceMonitor", "PrometheusRule"}
    assert not kinds & {thing["kind"] for thing in render(helm)}
    asked = render(helm, "--set", "metrics.serviceMonitor.enabled=true,metrics.rules.enabled=true")
    assert kinds <= {thing["kind"] for thing in asked}


def test_the_operators_pods_are_scraped_in_one_way(helm: str) -> None:
    """By both, two would seem to lead."""
    for asked, ways in (((), 1), (("--set", "metrics.serviceMonitor.enabled=true"), 1)):
        things = render(helm, *asked)
        noted = deployment_of(things)["spec"]["template"]["metadata"].get("annotations") or {}
        assert ("prometheus.io/scrape" in noted) + any(thing["kind"] == "ServiceMonitor" for thing in things) == ways


def test_each_alert_asks_for_metrics_that_the_operator_has(helm: str) -> None:
    rules = next(t for t in render(helm, "--set", "metrics.rules.enabled=true") if t["kind"] == "PrometheusRule")
    names = {sample for family in metrics.REGISTRY.collect() for sample in (family.name, f"{family.name}_total")}
    asked = re.findall(r"harborrl_\w+", " ".join(rule["expr"] for rule in rules["spec"]["groups"][0]["rules"]))
    assert asked
    assert set(asked) <= names


def deployment_of(things: list[dict[str, Any]]) -> dict[str, Any]:
    return next(thing for thing in things if thing["kind"] == "Deployment")


def notes(helm: str, folder: Path, *arguments: str) -> str:
    """What `helm install` prints last. `helm template` prints no notes, so they become a manifest in a copy."""
    chart = shutil.copytree(CHART, folder / "chart")
    text = (chart / "templates" / "NOTES.txt").read_text()
    (chart / "templates" / "_notes.tpl").write_text('{{ define "told" }}' + text + "{{ end }}")
    (chart / "templates" / "told.yaml").write_text('told: {{ include "told" . | toJson }}')
    done = run(helm, "template", "h", str(chart), "--kube-version", "1.35.0", "-s", "templates/told.yaml", *arguments)
    assert done.returncode == 0, done.stderr
    return str(yaml.safe_load(done.stdout)["told"])


def test_images_that_only_a_dev_cluster_has_are_warned_of(helm: str, tmp_path: Path) -> None:
    told = notes(helm, tmp_path, "--set", "images.operator=registry.example/operator:1")
    (warning,) = (line for line in told.splitlines() if "WARNING" in line)
    assert "images.agentServer, images.sandbox, images.tools, images.trainer" in warning
    assert "images.operator" not in warning


def test_images_of_a_registry_are_not_warned_of(helm: str, tmp_path: Path) -> None:
    names = ("operator", "agentServer", "trainer", "sandbox", "tools")
    sets = [word for name in names for word in ("--set", f"images.{name}=registry.example/{name}:1")]
    assert "WARNING" not in notes(helm, tmp_path, *sets)


@pytest.mark.parametrize(("given", "warned"), [((), True), (("network.apiServer.cidrs={10.0.0.0/24}",), False)])
def test_a_list_of_namespaces_without_the_api_servers_range_is_warned_of(
    helm: str, tmp_path: Path, given: tuple[str, ...], warned: bool
) -> None:
    sets = [word for value in ("watchNamespaces={a}", *given) for word in ("--set", value)]
    assert ("network.apiServer.cidrs" in notes(helm, tmp_path, *sets)) is warned
