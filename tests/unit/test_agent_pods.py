"""What a pod's status means, which image and resources a task gets: pure."""

from typing import Any

import pytest
from harbor.models.task.config import EnvironmentConfig
from pydantic import ValidationError

from harborrl_agent_server.errors import SandboxStartError, SandboxUnusableError
from harborrl_agent_server.sandboxes.images import SandboxConfig, image_of, quantity, resources_of
from harborrl_agent_server.sandboxes.pod_exec import loss_error
from harborrl_agent_server.sandboxes.pods import State, judge, labels_for, sandbox_name, sandbox_pod
from harborrl_agent_server.settings import JobIdentity


def pod(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "sb"}, "status": status}


def waiting(reason: str) -> dict[str, Any]:
    return pod(phase="Pending", containerStatuses=[{"state": {"waiting": {"reason": reason, "message": "said"}}}])


def ended(reason: str) -> dict[str, Any]:
    return pod(phase="Failed", containerStatuses=[{"state": {"terminated": {"reason": reason, "exitCode": 137}}}])


LIMITED = {"spec": {"containers": [{"name": "main", "resources": {"limits": {"memory": "1Gi"}}}]}}
UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}


@pytest.mark.parametrize(
    ("seen", "state", "reason", "own_limits"),
    [
        pytest.param(pod(phase="Pending"), State.PENDING, "Pending", False, id="nothing known yet"),
        pytest.param(
            pod(phase="Pending", conditions=[UNSCHEDULABLE]), State.PENDING, "Unschedulable", False, id="no node"
        ),
        pytest.param(waiting("ContainerCreating"), State.PENDING, "ContainerCreating", False, id="on its way"),
        pytest.param(waiting("ErrImagePull"), State.TROUBLED, "ImagePullFailed", False, id="a pull that may heal"),
        pytest.param(waiting("ImagePullBackOff"), State.TROUBLED, "ImagePullFailed", False, id="the same, later"),
        pytest.param(
            waiting("InvalidImageName"), State.FAILED, "InvalidImageName", False, id="a name that never heals"
        ),
        pytest.param(LIMITED | ended("OOMKilled"), State.FAILED, "OOMKilled", True, id="out of its memory"),
        pytest.param(ended("OOMKilled"), State.FAILED, "OOMKilled", False, id="out of the node's memory"),
        pytest.param(ended("Error"), State.FAILED, "Error", False, id="ended"),
        pytest.param(
            pod(phase="Failed", reason="Evicted", message="ephemeral local storage usage exceeds"),
            State.FAILED,
            "Evicted",
            True,
            id="too much storage",
        ),
        pytest.param(
            pod(phase="Failed", reason="Evicted", message="node was low on memory"),
            State.FAILED,
            "Evicted",
            False,
            id="node",
        ),
        pytest.param(
            pod(
                phase="Failed",
                reason="Evicted",
                message="The node was low on resource: ephemeral-storage. Container main was using 4Gi, request is 0.",
            ),
            State.FAILED,
            "Evicted",
            False,
            id="a node's full disk is not the policy's doing",
        ),
        pytest.param(
            pod(phase="Failed", reason="DeadlineExceeded"), State.FAILED, "DeadlineExceeded", False, id="too old"
        ),
        pytest.param(
            pod(phase="Running", containerStatuses=[{"state": {"running": {}}}]), State.READY, "", False, id="running"
        ),
    ],
)
def test_a_status_is_judged(seen: dict[str, Any], state: State, reason: str, own_limits: bool) -> None:
    verdict = judge(seen)
    assert (verdict.state, verdict.reason, verdict.own_limits) == (state, reason, own_limits)


def told_to_end(**status: Any) -> dict[str, Any]:
    """Its process 1 ended as it does on SIGTERM."""
    return pod(containerStatuses=[{"state": {"terminated": {"reason": "Completed", "exitCode": 0}}}], **status)


BESIDE = {"spec": {"containers": [{"name": "main"}, {"name": "cache"}]}}


@pytest.mark.parametrize(
    ("cache", "main", "state", "by_itself"),
    [
        pytest.param("running", "waiting", State.PENDING, False, id="the sandbox itself does not run yet"),
        pytest.param("terminated", "running", State.READY, False, id="only the other one has ended"),
        pytest.param("running", "terminated", State.FAILED, True, id="only the other one runs"),
    ],
)
def test_a_container_that_overrides_add_says_nothing_about_the_sandbox(
    cache: str, main: str, state: State, by_itself: bool
) -> None:
    states = {"running": {}, "waiting": {"reason": "ContainerCreating"}, "terminated": {"exitCode": 0}}
    listed = [{"name": name, "state": {now: states[now]}} for name, now in (("cache", cache), ("main", main))]
    verdict = judge(BESIDE | pod(phase="Running", containerStatuses=listed))
    assert (verdict.state, verdict.by_itself) == (state, by_itself)


DELETED = {"metadata": {"name": "sb", "deletionTimestamp": "2026-01-01T00:00:00Z"}}
PREEMPTED = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}


@pytest.mark.parametrize(
    ("seen", "by_itself"),
    [
        pytest.param(told_to_end(phase="Succeeded"), True, id="by a process of its own"),
        pytest.param(told_to_end(phase="Running"), True, id="the same, before the phase says it"),
        pytest.param(told_to_end(phase="Running") | DELETED, False, id="by somebody who deleted the pod"),
        pytest.param(told_to_end(phase="Failed", reason="Terminated"), False, id="by the shutdown of its node"),
        pytest.param(told_to_end(phase="Failed", reason="Preempting"), False, id="by a pod that the node needed more"),
        pytest.param(told_to_end(phase="Succeeded", conditions=[PREEMPTED]), False, id="by the scheduler"),
        pytest.param(ended("Error"), False, id="by a signal from outside"),
        pytest.param(LIMITED | ended("OOMKilled"), False, id="by its limits"),
    ],
)
def test_a_sandbox_that_its_own_processes_ended_is_told_from_one_that_was_taken(
    seen: dict[str, Any], by_itself: bool
) -> None:
    verdict = judge(seen)
    assert (verdict.state, verdict.by_itself) == (State.FAILED, by_itself)
    error = loss_error("sb", verdict)
    assert isinstance(error, SandboxUnusableError) is by_itself


def test_a_running_pod_that_is_gone_is_lost() -> None:
    running = pod(phase="Running", containerStatuses=[{"state": {"running": {}}}])
    assert judge(running, gone=True).reason == "Deleted"


def config(**values: Any) -> SandboxConfig:
    return SandboxConfig.model_validate(values)


@pytest.mark.parametrize(
    ("task", "settings", "image"),
    [
        ({"docker_image": "a:1"}, {}, "a:1"),
        ({"docker_image": "a:1"}, {"images": {"map": {"a:1": "mirror/a:1"}}}, "mirror/a:1"),
        ({}, {"images": {"map": {"task-x": "b:2"}, "template": "t/{task}"}}, "b:2"),
        ({}, {"images": {"template": "registry/{task}:{hash}"}}, "registry/task-x:abc"),
        ({}, {}, "fallback"),
    ],
)
def test_the_nearest_word_on_the_image_wins(task: dict[str, Any], settings: dict[str, Any], image: str) -> None:
    assert image_of(EnvironmentConfig(**task), ["task-x", "x"], "abc", config(**settings), "fallback") == image


def test_a_task_without_any_image_is_told_where_to_name_one() -> None:
    with pytest.raises(SandboxStartError, match=r"NoImage.*docker_image.*--sandbox-image"):
        image_of(EnvironmentConfig(), ["x"], "", config(), None)


def test_memory_is_a_limit_and_cpu_may_burst() -> None:
    resources = resources_of(EnvironmentConfig(cpus=0.5, memory_mb=64), config(defaults={"requests": {"cpu": 1}}))
    assert resources == {"requests": {"cpu": "500m", "memory": "64Mi"}, "limits": {"memory": "64Mi"}}


@pytest.mark.parametrize(
    "wrong",
    [
        {"defaults": {"requests": {"memory": "much"}}},
        {"limits": {"limits": {"cpu": "1x"}}},
        {"images": {"template": "registry/{name}:1"}},
        {"images": {"template": "registry/{task:1"}},
        {"images": {"template": "registry/{}"}},
    ],
)
def test_what_no_trial_could_use_ends_the_server_at_its_start(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        config(**wrong)


def test_a_task_that_states_more_cpu_than_the_default_limit_gets_it() -> None:
    resources = resources_of(EnvironmentConfig(cpus=2), config(defaults={"limits": {"cpu": 1}}))
    assert resources == {"requests": {"cpu": "2000m"}, "limits": {"cpu": "2000m"}}
    assert resources_of(EnvironmentConfig(cpus=0.5), config(defaults={"limits": {"cpu": 1}}))["limits"] == {"cpu": "1"}
    both = config(defaults={"limits": {"cpu": 1}}, limits={"limits": {"cpu": 4}})
    assert resources_of(EnvironmentConfig(cpus=2), both)["limits"] == {"cpu": "2000m"}


def test_a_task_that_asks_for_more_than_the_limit_is_refused_by_name() -> None:
    with pytest.raises(SandboxStartError, match=r"ResourcesRefused.*memory 4096Mi.*allows 1Gi"):
        resources_of(EnvironmentConfig(memory_mb=4096), config(limits={"limits": {"memory": "1Gi"}}))


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("500m", 0.5),
        ("1Gi", 2**30),
        ("2G", 2e9),
        ("3", 3),
        ("64Mi", 2**26),
        ("1Ei", 2**60),
        ("4E", 4e18),
        ("1E3", 1000),
        ("2e2", 200),
        ("500u", 0.0005),
        ("7n", 7e-9),
    ],
)
def test_quantities_are_numbers(text: str, number: float) -> None:
    assert float(quantity(text)) == number


def test_names_fit_and_differ_where_their_ends_differ() -> None:
    names = {sandbox_name("x" * 80 + end) for end in ("__env", "__verifier__trial")}
    assert len(names) == 2
    assert all(len(name) <= 63 and name.startswith("sb-") for name in names)


def test_the_labels_of_docs_contracts_are_on_every_sandbox() -> None:
    assert labels_for(JobIdentity("research", "quickstart", "uid"), "sandbox") == {
        "app.kubernetes.io/managed-by": "harborrl",
        "harborrl.dev/role": "sandbox",
        "harborrl.dev/job": "quickstart",
        "harborrl.dev/job-namespace": "research",
        "harborrl.dev/job-uid": "uid",
    }


def test_the_pod_holds_nothing_of_the_cluster_and_ends_by_itself() -> None:
    made = sandbox_pod(
        name="sb",
        namespace="n",
        labels={},
        owner={},
        image="i",
        resources={},
        life_s=700.9,
        config=config(images={"pullSecrets": ["s"]}),
    )
    spec = made["spec"]
    assert (spec["activeDeadlineSeconds"], spec["automountServiceAccountToken"], spec["enableServiceLinks"]) == (
        700,
        False,
        False,
    )
    assert spec["imagePullSecrets"] == [{"name": "s"}]
    assert spec["containers"][0]["securityContext"]["capabilities"]["drop"] == ["ALL"]
    assert "runtimeClassName" not in spec
