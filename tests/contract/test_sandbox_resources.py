"""What the preflight says of a task's sandbox is what the agent server will make of it."""

import tomllib
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from harbor.models.task.config import TaskConfig

from harborrl_agent_server.errors import SandboxStartError
from harborrl_agent_server.sandboxes.images import SandboxConfig, image_of, resources_of
from harborrl_agent_server.sandboxes.images import quantity as server_quantity
from harborrl_trainer.job import Sandbox
from harborrl_trainer.preflight.sandboxes import image_problem, wanted_by

TASKS = [
    "",
    "[environment]\ncpus = 2\nmemory_mb = 512\nstorage_mb = 1024",
    "[environment]\ncpus = 0.02\ngpus = 2",
    '[environment]\ndocker_image = "debian:trixie-slim"\ncpus = 1.2345',
]
SANDBOXES: list[dict[str, Any]] = [
    {},
    {"defaults": {"requests": {"cpu": "250m", "memory": "1Gi"}, "limits": {"memory": "2Gi"}}},
    {"defaults": {"requests": {"memory": "1E3"}, "limits": {"cpu": "500m", "memory": "1e9"}}},
    {"limits": {"limits": {"cpu": 4, "memory": "8Gi", "ephemeral-storage": "10G"}}},
    {"images": {"map": {"debian:trixie-slim": "base:1", "greet": "greet:1"}}},
    {"images": {"template": "registry.example/{task}:{hash}"}},
]


@pytest.mark.parametrize("sandbox", SANDBOXES, ids=str)
@pytest.mark.parametrize("toml", TASKS)
def test_requests_and_limits_are_those_of_the_pod(toml: str, sandbox: dict[str, Any]) -> None:
    wanted = wanted_by(tomllib.loads(toml), Sandbox.model_validate(sandbox))
    pod = resources_of(TaskConfig.model_validate_toml(toml).environment, SandboxConfig.model_validate(sandbox))
    pod_amounts = {kind: amounts(part) for kind, part in pod.items()}
    # The API server takes a limit for the request that is not set.
    assert dict(wanted.requests) == {**pod_amounts["limits"], **pod_amounts["requests"]}
    assert dict(wanted.limits) == pod_amounts["limits"]


def amounts(part: dict[str, str]) -> dict[str, Decimal]:
    return {name: server_quantity(text) for name, text in part.items()}


@pytest.mark.parametrize("fallback", [None, "localhost/harborrl/base:dev"])
@pytest.mark.parametrize("sandbox", SANDBOXES, ids=str)
@pytest.mark.parametrize("toml", TASKS)
def test_a_task_has_no_image_here_exactly_when_it_has_none_there(
    tmp_path: Path, toml: str, sandbox: dict[str, Any], fallback: str | None
) -> None:
    directory = tmp_path / "greet"
    directory.mkdir()
    here = image_problem(directory, tomllib.loads(toml), Sandbox.model_validate(sandbox), fallback)
    config = SandboxConfig.model_validate(sandbox)
    try:
        image_of(TaskConfig.model_validate_toml(toml).environment, ["greet"], "0", config, fallback)
    except SandboxStartError:
        assert here == "names none"
    else:
        assert here == ""
