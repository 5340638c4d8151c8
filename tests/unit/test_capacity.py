"""Bursts, quota and nodes against the preflight's numbers: what can never fit refuses, what waits is said."""

import json
from typing import Any

import pytest

from harborrl_operator.draft import Plan
from harborrl_operator.observed import Surroundings
from support import hrl

MILES: dict[str, Any] = {"trainer.engine": "miles", "trainer.gpusPerNode": 8}
"""The engine that reads raw flags."""

TASK = {"requests": {"cpu": "500m", "memory": "1073741824"}, "limits": {"memory": "1073741824"}, "unset": []}


def quota(**hard: str) -> dict[str, Any]:
    names = {name.replace("__", ".").replace("_", "/"): limit for name, limit in hard.items()}
    return {"metadata": {"namespace": "sandboxes", "name": "team"}, "spec": {"hard": names}}


def node(cpu: str = "8", memory: str = "16Gi", **spec: Any) -> dict[str, Any]:
    allocatable = {"cpu": cpu, "memory": memory, "pods": "110"}
    labels = spec.pop("labels", {})
    return {"metadata": {"name": "n", "labels": labels}, "spec": spec, "status": {"allocatable": allocatable}}


def admit(facts: dict[str, Any], changes: dict[str, Any] | None = None, **around: Any) -> Plan:
    """The pass after a preflight that passed with `facts`."""
    job = hrl.job(changes)
    message = json.dumps({"schemaVersion": 1, "ok": True, "findings": [], "facts": facts})
    pod = hrl.preflight_pod(job, exit_code=0, message=message)
    seen = hrl.world(deployment=hrl.deployment(job), preflight_pod=pod, surroundings=Surroundings(**around))
    first = hrl.decide(job, seen)
    return hrl.decide(hrl.then(job, first), seen) if first.requeue_after == 3.0 else first


REFUSED: list[tuple[str, dict[str, str], str]] = [
    ("too few pods", {"pods": "7"}, "may ask for pods but ResourceQuota sandboxes/team allows 7, which is 7 sandboxes"),
    ("pods counted as objects", {"count_pods": "7"}, "which is 7 sandboxes"),
    ("too little memory", {"requests__memory": "6Gi"}, "requests.memory 8 x 1Gi = 8Gi but"),
    ("memory without the prefix", {"memory": "6Gi"}, "memory 8 x 1Gi = 8Gi"),
    (
        "too few CPUs",
        {"requests__cpu": "3500m"},
        "requests.cpu 8 x 0.5 = 4 but ResourceQuota sandboxes/team allows 3500m",
    ),
    ("too low limits", {"limits__memory": "2Gi"}, "Set maxConcurrent to at most 2 (and the trials in flight with it)"),
]


@pytest.mark.parametrize(("hard", "says"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_a_quota_that_all_slots_together_exceed_refuses_with_the_numbers(hard: dict[str, str], says: str) -> None:
    decided = admit({"sandboxes": TASK}, quotas=(quota(**hard),))
    assert hrl.condition(decided, "Admitted") == ("False", "SandboxQuotaTooSmall")
    assert says in hrl.message(decided, "Admitted")
    assert decided.status.phase == "Refused"
    assert not {"RayCluster", "Deployment"} & {thing["kind"] for thing in decided.apply}


@pytest.mark.parametrize(
    "hard",
    [
        {"pods": "8", "requests__memory": "8Gi", "requests__cpu": "4", "limits__memory": "8Gi"},
        {"count_secrets": "4", "requests__nvidia__com_gpu": "0", "limits__cpu": "1"},
        {},
    ],
    ids=str,
)
def test_a_quota_that_just_suffices_admits(hard: dict[str, str]) -> None:
    assert hrl.condition(admit({"sandboxes": TASK}, quotas=(quota(**hard),)), "Admitted") == ("True", "Admitted")


WARM = {"agentServer.sandbox.warmPool": {"size": 2, "images": 3}}


def test_a_quota_has_to_hold_the_warm_pods_beside_all_slots() -> None:
    facts = {"sandboxes": TASK}
    assert hrl.condition(admit(facts, WARM, quotas=(quota(pods="10"),)), "Admitted") == ("True", "Admitted")
    refused = admit(facts, WARM, quotas=(quota(pods="9"),))
    assert hrl.condition(refused, "Admitted") == ("False", "SandboxQuotaTooSmall")
    said = hrl.message(refused, "Admitted")
    assert "maxConcurrent 8 with 2 warm pods beside it (agentServer.sandbox.warmPool) may ask for pods" in said
    assert "Make warmPool smaller" in said
    assert "have pods raised to 10" in said


def test_a_quota_below_the_slots_themselves_asks_for_fewer_of_them() -> None:
    said = hrl.message(admit({"sandboxes": TASK}, WARM, quotas=(quota(pods="5"),)), "Admitted")
    assert "Leave warmPool out and set maxConcurrent to at most 5" in said


def test_nodes_have_to_hold_the_warm_pods_too() -> None:
    decided = admit({"sandboxes": TASK}, WARM, nodes=(node(cpu="4"),))
    assert hrl.condition(decided, "CapacityTight") == ("True", "SandboxesExceedNodes")
    assert "maxConcurrent is 8 with 2 warm pods beside it" in hrl.message(decided, "CapacityTight")
    enough = admit({"sandboxes": TASK}, WARM, nodes=(node(cpu="5"),))
    assert hrl.condition(enough, "CapacityTight") == ("False", "CapacitySufficient")


def test_a_resource_that_a_quota_counts_must_be_set_by_every_task() -> None:
    facts = {"sandboxes": {"requests": {"cpu": "1"}, "limits": {}, "unset": ["memory"]}}
    refused = admit(facts, quotas=(quota(requests__memory="1Ti"),))
    assert hrl.condition(refused, "Admitted") == ("False", "SandboxQuotaTooSmall")
    assert "Set agentServer.sandbox.defaults.requests.memory" in hrl.message(refused, "Admitted")
    filled_in = admit(facts, quotas=(quota(requests__memory="1Ti"),), has_limit_range=True)
    assert hrl.condition(filled_in, "Admitted") == ("True", "Admitted")


def test_a_limit_that_a_quota_counts_must_be_set_by_every_task() -> None:
    facts = {"sandboxes": {**TASK, "unlimited": ["cpu"]}}
    refused = admit(facts, quotas=(quota(limits__cpu="64"),))
    assert "Set agentServer.sandbox.defaults.limits.cpu" in hrl.message(refused, "Admitted")
    assert hrl.condition(admit(facts, quotas=(quota(requests__cpu="64"),)), "Admitted") == ("True", "Admitted")


def test_a_raised_quota_admits_without_another_preflight() -> None:
    refused = admit({"sandboxes": TASK}, quotas=(quota(pods="7"),))
    assert hrl.deleted(refused) == [hrl.SERVER]
    assert "RayCluster/quickstart-a1" in hrl.applied(admit({"sandboxes": TASK}, quotas=(quota(pods="8"),)))


def test_nodes_that_cannot_hold_all_slots_are_said_and_not_refused() -> None:
    decided = admit({"sandboxes": TASK}, nodes=(node(cpu="2"), node(memory="2Gi"), node(unschedulable=True)))
    assert hrl.condition(decided, "Admitted") == ("True", "Admitted")
    assert hrl.condition(decided, "CapacityTight") == ("True", "SandboxesExceedNodes")
    assert "The 2 nodes that take sandboxes have room for 6" in hrl.message(decided, "CapacityTight")
    enough = admit({"sandboxes": TASK}, nodes=(node(cpu="2"), node(cpu="2")))
    assert hrl.condition(enough, "CapacityTight") == ("False", "CapacitySufficient")


@pytest.mark.parametrize(
    ("spec", "sandbox", "usable"),
    [
        ({"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]}, {}, 0),
        ({"taints": [{"key": "gpu", "value": "yes", "effect": "PreferNoSchedule"}]}, {}, 1),
        (
            {"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]},
            {"tolerations": [{"key": "gpu", "operator": "Exists"}]},
            1,
        ),
        (
            {"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]},
            {"tolerations": [{"key": "gpu", "value": "no", "effect": "NoSchedule"}]},
            0,
        ),
        ({}, {"nodeSelector": {"pool": "sandboxes"}}, 0),
        ({"labels": {"pool": "sandboxes"}}, {"nodeSelector": {"pool": "sandboxes"}}, 1),
    ],
)
def test_only_nodes_that_take_sandboxes_count(spec: dict[str, Any], sandbox: dict[str, Any], usable: int) -> None:
    decided = admit({"sandboxes": TASK}, {"agentServer.sandbox": sandbox}, nodes=(node(**spec),))
    assert hrl.condition(decided, "CapacityTight")[0] == ("False" if usable else "True")


def test_an_evaluation_above_the_slots_is_said_with_its_rounds() -> None:
    evaluation = {"eval": {"jsonl": "e.jsonl", "samplesPerPrompt": 2}}
    decided = admit({"evalPrompts": 10}, evaluation)
    assert hrl.condition(decided, "CapacityTight") == ("True", "EvaluationExceedsCapacity")
    assert "10 prompts x 2 = 20 trials at once and 8 run; it takes 3 rounds" in hrl.message(decided, "CapacityTight")
    enough = admit({"evalPrompts": 10}, evaluation | {"agentServer.maxConcurrent": 20})
    assert hrl.condition(enough, "CapacityTight") == ("False", "CapacitySufficient")


def test_a_shared_server_is_judged_by_its_live_capacity() -> None:
    shared = {"eval": {"jsonl": "e.jsonl"}, **hrl.BROUGHT}
    decided = admit({"evalPrompts": 64, "agentServer": {"capacity": 32, "free": 32}}, shared)
    assert "64 prompts x 1 = 64 trials at once and 32 run" in hrl.message(decided, "CapacityTight")
    assert "give the server 64" in hrl.message(decided, "CapacityTight")


@pytest.mark.parametrize(("batch", "tight"), [(25, False), (26, True)])
def test_another_agent_client_than_ours_is_warned_of_above_its_connections(batch: int, tight: bool) -> None:
    own = {"trainer.extraArgs": "--custom-agent-function-path mine.run", "trainer.config.rolloutBatchSize": batch}
    decided = admit({}, MILES | own)
    assert hrl.condition(decided, "CapacityTight")[0] == str(tight)
    if tight:
        assert hrl.condition(decided, "CapacityTight")[1] == "ClientConnectionCap"
        assert "104 trials in flight (rolloutBatchSize 26 x nSamplesPerPrompt 4)" in hrl.message(
            decided, "CapacityTight"
        )


def test_everything_that_waits_is_said_at_once_under_the_first_reason() -> None:
    changes = MILES | {"eval": {"jsonl": "e.jsonl"}, "trainer.extraArgs": "--over-sampling-batch-size 3"}
    decided = admit({"evalPrompts": 9, "sandboxes": TASK}, changes, nodes=(node(cpu="2"),))
    assert hrl.condition(decided, "CapacityTight") == ("True", "BurstExceedsCapacity")
    for part in ("up to 16 trials", "9 prompts x 1 = 9", "room for 4"):
        assert part in hrl.message(decided, "CapacityTight")


def test_what_waits_is_no_new_transition_in_every_pass() -> None:
    changes = {"eval": {"jsonl": "e.jsonl"}}
    job = hrl.job(changes)
    message = json.dumps({"schemaVersion": 1, "ok": True, "findings": [], "facts": {"evalPrompts": 9}})
    pod = hrl.preflight_pod(job, exit_code=0, message=message)
    seen = hrl.world(deployment=hrl.deployment(), preflight_pod=pod, trainer_pods=(hrl.trainer_pod(),))
    first = hrl.decide(job, seen)
    later = hrl.decide(hrl.then(job, first), seen, after=60)
    assert later.status.conditions == first.status.conditions


@pytest.mark.parametrize(
    "facts",
    [None, [], {"sandboxes": {"requests": {"cpu": "much"}}}, {"evalPrompts": "many"}, {"agentServer": 7}],
    ids=str,
)
def test_numbers_of_another_version_hold_no_job_up(facts: Any) -> None:
    assert hrl.condition(admit(facts), "Admitted") == ("True", "Admitted")
