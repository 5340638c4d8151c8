"""Which flows a job's policies open, and that the page for users lists exactly those."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harborrl_operator.flows import Group, Outside, flows
from harborrl_operator.models import Settings
from harborrl_operator.models.network import NetworkSettings
from harborrl_operator.observed import Address
from harborrl_operator.resolve import ResolvedJob, resolve
from harborrl_operator.resources.network import policies
from support import hrl
from support.flow_table import rows

API = (Address("203.0.113.7/32", 6443),)
NOT_OURS = {"operator-port", "probes", "exec"}
"""Rows of flows that no policy of a job opens: the chart's, and what Kubernetes always allows."""


def resolved(changes: dict[str, Any] | None = None, **network: Any) -> ResolvedJob:
    settings = Settings(network=NetworkSettings.model_validate(network))
    return resolve(hrl.job(changes), settings)


def everything() -> ResolvedJob:
    """A job with every kind of flow."""
    monitoring = [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}]
    changes = {"network.egress": [{"cidr": "0.0.0.0/0", "ports": [443]}], "agentServer.agentName": "mini-swe-agent"}
    return resolved(changes, monitoring=monitoring)


def test_the_page_lists_exactly_the_flows_that_policies_open() -> None:
    assert {flow.name for flow in flows(everything(), API)} == {row.flow for row in rows("Open")} - NOT_OURS


def test_no_flow_is_listed_twice_and_none_is_both_open_and_closed() -> None:
    names = [row.flow for part in ("Open", "Closed") for row in rows(part)]
    assert len(names) == len(set(names))


def opened(job: ResolvedJob) -> list[tuple[str, str, Any, Any]]:
    """(policy, direction, peers, ports) of every rule."""
    return [
        (policy["metadata"]["name"].removeprefix("quickstart-"), side, rule.get(side), rule.get("ports"))
        for policy in policies(job, API)
        for direction, side in (("ingress", "from"), ("egress", "to"))
        for rule in policy["spec"].get(direction, [])
    ]


def test_every_policy_is_closed_in_both_directions_but_for_its_rules() -> None:
    deny = policies(everything(), API)[0]
    assert deny["spec"] == {
        "podSelector": {"matchLabels": {"harborrl.dev/job-uid": hrl.UID}},
        "policyTypes": ["Ingress", "Egress"],
    }


@pytest.mark.parametrize(
    "changes", [{}, {"agentServer.url": "http://agents.team.svc:8080"}, {"agentServer.url": "https://agents.example"}]
)
def test_no_rule_has_an_empty_list_of_peers_which_kubernetes_reads_as_everybody(changes: dict[str, Any]) -> None:
    assert all(peers for _, _, peers, _ in opened(resolved(changes)))


def test_a_flow_to_nobody_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="no flow"):
        Outside(())


def port_is_in(ports: list[dict[str, Any]], wanted: int) -> bool:
    return any(port["port"] <= wanted <= port.get("endPort", port["port"]) for port in ports)


def test_rays_dashboard_is_open_to_no_pod_at_all() -> None:
    for policy, side, _, ports in opened(everything()):
        if policy in ("trainer", "head") and side == "from":
            assert not port_is_in(ports, 8265)
            assert ports


def test_trainer_pods_reach_each_other_on_every_other_port() -> None:
    (ray,) = [ports for policy, side, _, ports in opened(resolved()) if (policy, side) == ("trainer", "from")]
    assert all(port_is_in(ray, port) for port in (1, 6379, 8264, 8266, 10001, 52365, 65535))


def test_the_agent_server_reaches_every_session_server_and_the_router_and_nothing_else_in_the_head() -> None:
    job = resolved({"trainer.ports": {"session": 31000, "sessionCount": 4, "router": 32000}})
    (rule,) = [ports for policy, side, _, ports in opened(job) if (policy, side) == ("head", "from")]
    assert rule == [
        {"protocol": "TCP", "port": 31000, "endPort": 31003},
        {"protocol": "TCP", "port": 32000},
    ]


def test_the_api_server_is_reached_where_it_says_or_where_the_chart_says() -> None:
    def target(job: ResolvedJob, seen: tuple[Address, ...]) -> tuple[Any, Any]:
        flow = next(flow for flow in flows(job, seen) if flow.name == "agent-api")
        assert isinstance(flow.target, Outside)
        return [peer["ipBlock"]["cidr"] for peer in flow.target.peers], [port["port"] for port in flow.ports]

    assert target(resolved(), API) == (["203.0.113.7/32"], [6443])
    assert target(resolved(apiServer={"cidrs": ["198.51.100.0/24"]}), API) == (["198.51.100.0/24"], [6443])
    assert target(resolved(), ()) == (["0.0.0.0/0", "::/0"], [443, 6443])


def test_an_agent_server_elsewhere_is_reached_in_its_namespace_and_reaches_the_sessions_from_there() -> None:
    job = resolved({"agentServer.url": "http://agents.team.svc:8080"})
    there = Outside(({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "team"}}},))
    found = {flow.name: flow for flow in flows(job, API)}
    assert (found["trials"].target, found["trials"].ports) == (there, ())
    assert (found["sessions"].source, found["sessions"].target) == (there, Group.HEAD)
    named = {flow.name: flow for flow in flows(resolved({"agentServer.url": "https://agents.example/x"}), API)}
    assert named["trials"].ports == ({"protocol": "TCP", "port": 443},)


@pytest.mark.parametrize(
    ("changes", "is_open"),
    [
        ({}, False),
        ({"agentServer.agentName": "terminus-2"}, False),
        ({"agentServer.agentName": "mini-swe-agent"}, True),
        ({"agentServer.allowedAgents": ["bash", "mini-swe-agent"]}, True),
        ({"agentServer.agentName": "mini-swe-agent", **hrl.BROUGHT}, False),
    ],
    ids=str,
)
def test_the_gateway_is_open_to_the_jobs_own_sandboxes_when_agents_run_in_them(
    changes: dict[str, Any], is_open: bool
) -> None:
    namespace = {"matchLabels": {"kubernetes.io/metadata.name": "harborrl-sandboxes"}}
    own = {"matchLabels": {"harborrl.dev/job-uid": hrl.UID}}
    rules = [rule for rule in opened(resolved(changes)) if {"protocol": "TCP", "port": 30001} in (rule[3] or [])]
    wanted = (
        "agent-server",
        "from",
        [{"namespaceSelector": namespace, "podSelector": own}],
        rules[0][3] if rules else 0,
    )
    assert rules == ([wanted] if is_open else [])


def test_only_trainer_pods_reach_outside_and_only_where_the_job_or_the_chart_says() -> None:
    assert not [flow for flow in flows(resolved(), API) if flow.name == "egress"]
    rule = {"cidr": "0.0.0.0/0", "except": ["10.0.0.0/8"], "ports": [443]}
    proxy = {"to": [{"podSelector": {"matchLabels": {"app": "proxy"}}}], "ports": [{"port": 3128}]}
    found = [f for f in flows(resolved({"network.egress": [rule]}, egress=[proxy]), API) if f.name == "egress"]
    assert {flow.source for flow in found} == {Group.TRAINER}
    assert [flow.target for flow in found] == [
        Outside(({"ipBlock": {"cidr": "0.0.0.0/0", "except": ["10.0.0.0/8"]}},)),
        Outside(({"podSelector": {"matchLabels": {"app": "proxy"}}},)),
    ]


def existing(job: ResolvedJob) -> tuple[dict[str, Any], ...]:
    return tuple({"metadata": {**policy["metadata"], "uid": "p"}} for policy in policies(job, API))


def test_policies_that_the_platform_switched_off_are_removed_from_a_running_job() -> None:
    job = hrl.job()
    seen = hrl.running_world(job, network_policies=existing(resolved()))
    off = Settings(network=NetworkSettings(policies=False))
    assert {kind for kind, _ in kinds(hrl.decide(job, seen, settings=off).apply)}.isdisjoint({"NetworkPolicy"})
    deleted = [name for name in hrl.deleted(hrl.decide(job, seen, settings=off)) if name.startswith("NetworkPolicy")]
    assert len(deleted) == 5
    assert not [name for name in hrl.deleted(hrl.decide(job, seen)) if name.startswith("NetworkPolicy")]


def kinds(applied: tuple[dict[str, Any], ...]) -> list[tuple[str, str]]:
    return [(thing["kind"], thing["metadata"]["name"]) for thing in applied]


def test_pods_in_their_nodes_network_get_no_policies_and_the_job_says_so() -> None:
    job = hrl.job({"trainer.podOverrides": {"hostNetwork": True}})
    decided = hrl.decide(job, hrl.world())
    assert not [name for kind, name in kinds(decided.apply) if kind == "NetworkPolicy"]
    assert [a.field for a in decided.status.adjustments if "hostNetwork" in a.reason] == ["network"]


def test_policies_come_before_the_pods_that_they_protect() -> None:
    order = [kind for kind, _ in kinds(hrl.decide(hrl.job(), hrl.world()).apply)]
    assert order.index("NetworkPolicy") < order.index("Deployment")


def test_egress_that_a_job_adds_while_it_runs_takes_effect_at_once() -> None:
    job = hrl.job()
    edited = hrl.job({"network.egress": [{"cidr": "198.51.100.0/24"}]}, generation=2)
    decided = hrl.decide(edited, hrl.running_world(job))
    trainer = next(
        t for t in decided.apply if (t["kind"], t["metadata"]["name"]) == ("NetworkPolicy", "quickstart-trainer")
    )
    assert "198.51.100.0/24" in json.dumps(trainer["spec"]["egress"])
    assert "next attempt" not in hrl.message(decided, "Admitted")


def test_policies_follow_the_spec_and_the_api_server_while_another_change_waits_for_the_next_attempt() -> None:
    job = hrl.job()
    edited = hrl.job({"network.egress": [{"cidr": "198.51.100.0/24"}]}, generation=2)
    moved = hrl.running_world(
        job,
        api_server=(Address("203.0.113.9/32", 6443),),
        progress=hrl.progress(),
        claims={"other": hrl.claim("other")},
    )
    newer = replace(hrl.SETTINGS, default_claim="other")
    decided = hrl.decide(edited, moved, settings=newer)
    assert "next attempt" in hrl.message(decided, "Admitted")
    assert {kind for kind, _ in kinds(decided.apply)} == {"NetworkPolicy"}
    policies = json.dumps(list(decided.apply))
    assert "198.51.100.0/24" in policies
    assert "203.0.113.9/32" in policies


def test_the_pages_of_limits_and_network_name_no_field_that_does_not_exist() -> None:
    page = Path(__file__).resolve().parents[2].joinpath("docs", "network.md").read_text()
    named = set(re.findall(r"`network\.([a-zA-Z]+)", page))
    assert named <= {"dns", "apiServer", "monitoring", "egress", "policies"}
