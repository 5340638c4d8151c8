"""Agents, workers, allocators and tools of a server of ours: what is refused before it starts, and what it is told."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from harborrl_operator.models import Settings
from harborrl_operator.plan import plan
from harborrl_operator.resolve import ResolvedJob, resolve
from harborrl_operator.resources.agent_server import START_CONCURRENCY, deployment
from harborrl_operator.sandbox_defaults import AGENTS
from support import hrl, reached
from support.hrl import condition, decide, message

REFUSALS: list[tuple[str, dict[str, Any], str, str]] = [
    (
        "an agent that the list leaves out",
        {"allowedAgents": ["nop", "terminus-2"]},
        "AgentNotAllowed",
        "agentServer.allowedAgents is nop, terminus-2 and every trial names agentServer.agentName bash. Add it",
    ),
    (
        "an agent that nobody brings",
        {"agentName": "mine"},
        "FieldUnsupported",
        "agentServer.agentName: 'mine' is not among the agents of this job: bash, terminus-2, mini-swe-agent, nop.",
    ),
    (
        "an allowed one that nobody brings",
        {"agents": {"other": "a.b:C"}, "allowedAgents": ["bash", "mine"]},
        "FieldUnsupported",
        "agentServer.allowedAgents: 'mine' is not among the agents of this job: bash, terminus-2, mini-swe-agent, nop,",
    ),
    ("what is never trained on", {"agentName": "oracle"}, "FieldUnsupported", "one of them; it runs a task's"),
    ("one that takes a name of ours", {"agents": {"bash": "a.b:C"}}, "FieldUnsupported", "'bash' is an agent of the"),
    ("the name that is never trained on", {"agents": {"oracle": "a.b:C"}}, "FieldUnsupported", "choose another name"),
    ("one without a name", {"agents": {"My Agent": "a.b:C"}}, "FieldUnsupported", "'My Agent' is no name"),
    ("a name with a line's end", {"agents": {"mine\n": "a.b:C"}}, "FieldUnsupported", "'mine\\n' is no name"),
    (
        "more workers than slots",
        {"workers": 9},
        "WorkersExceedSlots",
        "agentServer.workers is 9 and agentServer.maxConcurrent 8",
    ),
    ("a template that nobody claims", {"sandbox.claims.template": "python"}, "AllocatorMismatch", "makes no claims"),
    (
        "claims of no template",
        {"sandbox.allocator": "agent-sandbox"},
        "AllocatorMismatch",
        "Name one of namespace harborrl-sandboxes in agentServer.sandbox.claims.template",
    ),
    (
        "overrides of pods that a template makes",
        {
            "sandbox": {
                "allocator": "agent-sandbox",
                "claims": {"template": "python"},
                "podOverrides": {"dnsPolicy": "None"},
            }
        },
        "AllocatorMismatch",
        "which makes them of SandboxTemplate python. Write them there",
    ),
    (
        "sandboxes on the node's network",
        {"sandbox.podOverrides": {"hostNetwork": True}},
        "SandboxNotIsolated",
        "agentServer.sandbox.podOverrides: hostNetwork may not be set",
    ),
    (
        "a private host that is no network",
        {"sandbox.privateHosts": ["10.0.0.0/24", "10.0.0.7/24"]},
        "InvalidEgress",
        "agentServer.sandbox.privateHosts[1]: 10.0.0.7/24 is not how that network is written. Write 10.0.0.0/24.",
    ),
    ("a dashboard on the gateway's port", {"dashboardPort": 30001}, "PortConflict", "the port of its model gateway"),
    (
        "a token in a sandbox's variables",
        {"sandbox.podOverrides": {"containers": [{"name": "main", "env": [{"name": "T", "value": "hf_" + "a" * 34}]}]}},
        "PlainSecret",
        "agentServer.sandbox.podOverrides",
    ),
]

CLAIMS = replace(hrl.SETTINGS, agent_sandbox=True)


def of(changes: dict[str, Any]) -> dict[str, Any]:
    return {f"agentServer.{field}": value for field, value in changes.items()}


@pytest.mark.parametrize(("changes", "reason", "says"), [r[1:] for r in REFUSALS], ids=[r[0] for r in REFUSALS])
def test_is_refused_before_anything_starts(changes: dict[str, Any], reason: str, says: str) -> None:
    decided = plan(hrl.job(of(changes)), hrl.world(), CLAIMS, hrl.NOW)
    reached.note_status(decided.status)
    assert condition(decided, "Admitted") == ("False", reason)
    assert says in message(decided, "Admitted")
    assert decided.apply == ()


@pytest.mark.parametrize(
    "changes",
    [
        {"allowedAgents": ["nop", "bash"]},
        {"agentName": "mine", "agents": {"mine": "pkg.mod:Class"}},
        {"workers": 8},
        {"workers": 2, "dashboardPort": 8080},
        {"startConcurrency": 0},
        {"sandbox": {"allocator": "agent-sandbox", "claims": {"template": "python"}, "warmPool": {"size": 1}}},
        {"sandbox.warmPool": {"size": 2, "images": 1}},
        {"sandbox.privateHosts": ["10.0.0.0/24"]},
        {"sandbox.podOverrides": {"dnsPolicy": "None", "containers": [{"name": "main", "workingDir": "/srv"}]}},
    ],
    ids=str,
)
def test_is_admitted(changes: dict[str, Any]) -> None:
    decided = plan(hrl.job(of(changes)), hrl.world(), CLAIMS, hrl.NOW)
    assert condition(decided, "Admitted")[1] == "AwaitingPreflight"


def test_claims_are_refused_where_the_chart_gives_no_right_for_them() -> None:
    wanted = {"sandbox": {"allocator": "agent-sandbox", "claims": {"template": "python"}}}
    decided = decide(hrl.job(of(wanted)), hrl.world())
    assert condition(decided, "Admitted") == ("False", "AllocatorMismatch")
    assert "sandboxes.agentSandbox: true" in message(decided, "Admitted")


UNHEARD = {
    "allowedAgents": ["bash"],
    "agents": {"mine": "pkg.mod:Class"},
    "workers": 2,
    "startConcurrency": 4,
    "sandbox.allocator": "agent-sandbox",
    "sandbox.claims.template": "python",
    "sandbox.warmPool.size": 1,
    "sandbox.tools.image": "registry.example/tools:1",
    "sandbox.nodeSelectorForGpu": {"H100": {"gpu.example/model": "h100"}},
    "sandbox.podOverrides": {"hostNetwork": True},
    "sandbox.privateHosts": ["10.0.0.0/24"],
}


@pytest.mark.parametrize("field", UNHEARD)
def test_beside_a_server_of_the_users_own_it_is_refused_by_its_name(field: str) -> None:
    decided = decide(hrl.job({**hrl.BROUGHT, f"agentServer.{field}": UNHEARD[field]}), hrl.world())
    assert condition(decided, "Admitted") == ("False", "FieldUnsupported")
    assert message(decided, "Admitted").startswith(f"agentServer.{field}: a server of your own")


def resolved(changes: dict[str, Any], settings: Settings = hrl.SETTINGS) -> ResolvedJob:
    return resolve(hrl.job(of(changes)), settings)


def container(job: ResolvedJob) -> dict[str, Any]:
    found: dict[str, Any] = deployment(job, {})["spec"]["template"]["spec"]["containers"][0]
    return found


def flags(job: ResolvedJob) -> dict[str, str]:
    words = container(job)["args"]
    return dict(zip(words[::2], words[1::2], strict=True))


@pytest.mark.parametrize(
    ("changes", "allowed"),
    [
        ({}, "bash"),
        ({"agentName": "terminus-2"}, "terminus-2"),
        ({"allowedAgents": ["bash", "mini-swe-agent"]}, "bash,mini-swe-agent"),
    ],
    ids=str,
)
def test_a_request_may_name_what_the_trainer_names_and_what_the_job_lists(
    changes: dict[str, Any], allowed: str
) -> None:
    assert flags(resolved(changes))["--allowed-agents"] == allowed


def test_workers_and_starts_are_told_where_they_are_not_the_servers_own_default() -> None:
    assert {"--workers", "--start-concurrency"}.isdisjoint(flags(resolved({})))
    told = flags(resolved({"workers": 2, "startConcurrency": 0}))
    assert (told["--workers"], told["--start-concurrency"]) == ("2", "0")
    assert resolved({}).spec.agent_server.start_concurrency == START_CONCURRENCY


def test_sessions_are_taken_of_the_jobs_own_service_alone() -> None:
    job = resolved({})
    assert flags(job)["--allowed-model-hosts"] == job.document(1)["trainerHost"] == "quickstart-trainer.research.svc"
    own = {"trainer.engine": "miles", "trainer.extraArgs": "--custom-agent-function-path mine.run"}
    assert "--allowed-model-hosts" not in flags(resolve(hrl.job(own), hrl.SETTINGS))


def test_the_gateway_has_a_fixed_port_at_the_pods_address_and_is_a_port_of_the_pod_where_it_is_needed() -> None:
    for agent in AGENTS:
        made = container(resolved({"agentName": agent}))
        assert made["args"][made["args"].index("--gateway-port") + 1] == "30001"
        address = {"name": "POD_IP", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}}
        assert address in made["env"]
        ports = {port["name"]: port["containerPort"] for port in made["ports"]}
        assert ports.get("gateway") == (30001 if agent == "mini-swe-agent" else None)


def test_agents_of_the_users_own_are_told_each_and_may_ask_from_their_sandbox() -> None:
    own = {"mine": "pkg.mod:Class", "other": "pkg:Other"}
    job = resolved({"agents": own, "agentName": "mine"})
    words = container(job)["args"]
    told = [value for flag, value in pairwise(words) if flag == "--agent"]
    assert told == ["mine=pkg.mod:Class", "other=pkg:Other"]
    assert flags(job)["--allowed-agents"] == flags(job)["--agent-name"] == "mine"
    assert job.needs_gateway
    assert not resolved({"agents": own}).needs_gateway


@pytest.mark.parametrize(
    ("changes", "default", "image", "said"),
    [
        ({}, "registry.example/tools:1", "", False),
        ({"agentName": "terminus-2"}, "registry.example/tools:1", "registry.example/tools:1", False),
        ({"allowedAgents": ["bash", "mini-swe-agent"]}, "registry.example/tools:1", "registry.example/tools:1", False),
        ({"sandbox.tools.image": "mine:2"}, "registry.example/tools:1", "mine:2", False),
        ({"agentName": "mini-swe-agent", "sandbox.tools.image": ""}, "registry.example/tools:1", "", True),
        ({"agentName": "terminus-2"}, "", "", True),
    ],
    ids=str,
)
def test_the_tools_are_there_for_agents_that_need_them_and_their_absence_is_said(
    changes: dict[str, Any], default: str, image: str, said: bool
) -> None:
    job = resolved(changes, replace(hrl.SETTINGS, tools_image=default))
    assert job.sandbox["tools"] == {"image": image}
    reasons = [one.reason for one in job.adjustments if one.field == "agentServer.sandbox.tools"]
    assert reasons == ([f"no bundle: each task's image must hold what {changes['agentName']} needs"] if said else [])
