"""What a claim of agent-sandbox says, how its answer is read, and where a template and a task disagree."""

from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError

from harborrl_agent_server.sandboxes.claims import (
    came_warm,
    claim,
    disagreements,
    judge_claim,
    own_pool,
    pod_of,
    pool_of,
    sandbox_of,
)
from harborrl_agent_server.sandboxes.images import SandboxConfig
from harborrl_agent_server.sandboxes.pods import State

OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "server-1", "uid": "anchor"}
NETWORK = "harborrl.dev/network"


def manifest(labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "image:1", "resources": {"requests": {"cpu": "500m"}, "limits": {}}}
    meta = {"name": "sb-1", "namespace": "sandboxes", "labels": labels or {}, "ownerReferences": [OWNER]}
    return {"metadata": meta, "spec": {"containers": [container], **spec}}


def template(labels: dict[str, str] | None = None, resources: Any = None, **spec: Any) -> dict[str, Any]:
    container = {"name": "shell", "image": "image:1", "resources": resources or {"requests": {"cpu": "0.5"}}}
    pod = {"metadata": {"labels": labels or {}}, "spec": {"containers": [container], **spec}}
    return {"spec": {"podTemplate": pod}}


def answered(status: str, reason: str = "", name: str = "", **meta: Any) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": status, "reason": reason, "message": "said"}]
    return {"metadata": {"name": "sb-1", **meta}, "status": {"conditions": conditions, "sandbox": {"name": name}}}


def test_a_claim_belongs_to_the_anchor_and_ends_by_itself() -> None:
    made = claim(manifest({"harborrl.dev/trial": "run-1"}), "pool", datetime(2026, 11, 30, 4, 5, 6, 7, tzinfo=UTC))
    assert made["metadata"]["ownerReferences"] == [OWNER]
    assert made["metadata"]["labels"] == {"harborrl.dev/trial": "run-1"}
    assert made["spec"] == {
        "warmPoolRef": {"name": "pool"},
        "lifecycle": {"shutdownTime": "2026-11-30T04:05:06Z", "shutdownPolicy": "Delete"},
    }


@pytest.mark.parametrize(
    ("seen", "state"),
    [
        ({"metadata": {"name": "sb-1"}}, State.PENDING),
        (answered("False", "DependenciesNotReady"), State.PENDING),
        (answered("False", "ReconcilerError"), State.PENDING),
        (answered("False", "WarmPoolNotFound"), State.FAILED),
        (answered("True", "DependenciesReady"), State.READY),
        (answered("True", "DependenciesReady", deletionTimestamp="now"), State.FAILED),
    ],
)
def test_a_claim_is_judged_by_its_ready_condition(seen: dict[str, Any], state: State) -> None:
    assert judge_claim(seen).state is state
    assert judge_claim(seen, gone=True).state is State.FAILED


def test_the_pod_is_named_by_the_sandbox_and_that_by_the_claims_status() -> None:
    assert sandbox_of({"metadata": {}}) == ""
    assert sandbox_of(answered("True", name="pool-x7")) == "pool-x7"
    assert pod_of({"metadata": {"name": "pool-x7"}}) == "pool-x7"
    assert pod_of({"metadata": {"name": "pool-x7", "annotations": {"agents.x-k8s.io/pod-name": "pod-x7"}}}) == "pod-x7"


def test_a_sandbox_says_whether_it_came_from_the_pool() -> None:
    assert came_warm({"metadata": {"labels": {"agents.x-k8s.io/launch-type": "warm"}}})
    assert not came_warm({"metadata": {"labels": {"agents.x-k8s.io/launch-type": "cold"}}})


def test_the_largest_pool_of_the_template_that_stays_is_taken() -> None:
    def pool(name: str, of: str, replicas: int, **meta: Any) -> dict[str, Any]:
        return own_pool(name, of, replicas, {}, OWNER) | {"metadata": {"name": name, **meta}}

    pools = [pool("a", "t", 1), pool("b", "t", 5), pool("c", "u", 9), pool("d", "t", 9, deletionTimestamp="now")]
    assert pool_of("t", pools) == "b"
    assert pool_of("nowhere", pools) is None


def test_a_template_agrees_in_numbers_and_may_state_more_than_the_task() -> None:
    more = {"requests": {"cpu": "0.5", "memory": "1Gi"}, "limits": {"memory": "1Gi"}}
    assert disagreements(template(resources=more, runtimeClassName="gvisor"), manifest()) == []


@pytest.mark.parametrize(
    ("fixed", "wanted", "said"),
    [
        (template(), manifest(containers=[{"image": "image:2"}]), "image is image:1, the task's image:2"),
        (template(resources={"requests": {"cpu": "1"}}), manifest(), "requests.cpu is 1, the task's 500m"),
        (template(resources={"limits": {}}), manifest(), "requests.cpu is unset, the task's 500m"),
        (template(), manifest({NETWORK: "none"}), f"label {NETWORK} is unset, the task's none"),
        (template({NETWORK: "none"}), manifest(), f"label {NETWORK} is none, the task's unset"),
        (template(), manifest({NETWORK: "allowlist"}), "restricted for the trial alone"),
        (template(), manifest(runtimeClassName="gvisor"), "runtimeClassName is unset, the task's gvisor"),
        (template(), manifest(nodeSelector={"gpu": "h100"}), "nodeSelector gpu is unset, the task's h100"),
    ],
)
def test_what_a_template_fixes_otherwise_is_named(fixed: dict[str, Any], wanted: dict[str, Any], said: str) -> None:
    assert [line for line in disagreements(fixed, wanted) if said in line]


def test_a_task_without_network_agrees_with_a_template_without_one() -> None:
    assert disagreements(template({NETWORK: "none"}), manifest({NETWORK: "none"})) == []


def test_claims_need_a_template() -> None:
    with pytest.raises(ValidationError, match=r"claims\.template"):
        SandboxConfig.model_validate({"allocator": "agent-sandbox"})
    SandboxConfig.model_validate({"allocator": "agent-sandbox", "claims": {"template": "python"}})
