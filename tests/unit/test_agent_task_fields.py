"""Each field of task.toml is mapped to the pod or refused with a reason: docs/agent-server.md, row by row."""

import re
from pathlib import Path
from typing import Any

import pytest
from harbor.models.task.config import (
    AgentConfig,
    EnvironmentConfig,
    NetworkMode,
    NetworkPolicy,
    VerifierConfig,
)
from pydantic import BaseModel

from harborrl_agent_server.errors import SandboxStartError
from harborrl_agent_server.sandboxes.accelerators import gpu_placement
from harborrl_agent_server.sandboxes.images import SandboxConfig, resources_of
from support.sandbox_api import SandboxApi, provided, sandbox_of

PAGE = Path(__file__).parents[2] / "docs" / "agent-server.md"

NODES: dict[str, Any] = {"nodeSelectorForGpu": {"H100": {"gpu": "h100"}, "A100": {"gpu": "a100", "memory": "80"}}}


def test_every_field_of_harbors_has_a_row() -> None:
    rows = re.findall(r"^\| `((?:environment|agent|verifier)\.\w+)` \|", PAGE.read_text(), re.MULTILINE)
    models: dict[str, type[BaseModel]] = {
        "environment": EnvironmentConfig,
        "agent": AgentConfig,
        "verifier": VerifierConfig,
    }
    assert sorted(rows) == sorted(f"{part}.{field}" for part, model in models.items() for field in model.model_fields)


async def spec_of(folder: Path, settings: dict[str, Any] | None = None, **task: Any) -> dict[str, Any]:
    async with provided(SandboxApi(), folder, settings) as provider:
        found: dict[str, Any] = sandbox_of(provider, folder, **task).manifest()["spec"]
        return found


async def test_docker_image_is_the_containers_through_the_map(tmp_path: Path) -> None:
    spec = await spec_of(tmp_path, {"images": {"map": {"a:1": "mirror/a:1"}}}, docker_image="a:1")
    assert spec["containers"][0]["image"] == "mirror/a:1"


async def test_cpus_memory_and_storage_are_the_containers_resources(tmp_path: Path) -> None:
    spec = await spec_of(tmp_path, cpus=1.5, memory_mb=512, storage_mb=1024)
    both = {"memory": "512Mi", "ephemeral-storage": "1024Mi"}
    assert spec["containers"][0]["resources"] == {"requests": {"cpu": "1500m"} | both, "limits": both}


@pytest.mark.parametrize(
    ("task", "bound", "said"),
    [
        ({"cpus": 512}, {"cpu": 4}, "cpu 512000m.*allows 4"),
        ({"memory_mb": 4096}, {"memory": "1Gi"}, "memory 4096Mi.*allows 1Gi"),
        ({"storage_mb": 4096}, {"ephemeral-storage": "1Gi"}, "ephemeral-storage 4096Mi.*allows 1Gi"),
        ({"gpus": 8}, {"nvidia.com/gpu": 1}, r"nvidia\.com/gpu 8.*allows 1"),
        ({"memory_mb": -1}, {}, "memory -1Mi.*task.toml"),
        ({"gpus": -1}, {}, r"nvidia\.com/gpu -1.*task\.toml"),
    ],
)
def test_more_than_the_job_allows_is_refused_by_name(task: dict[str, Any], bound: dict[str, Any], said: str) -> None:
    config = SandboxConfig.model_validate({"limits": {"limits": bound}})
    with pytest.raises(SandboxStartError, match=f"ResourcesRefused.*{said}"):
        resources_of(EnvironmentConfig(**task), config)


async def test_gpus_are_a_limit_and_a_bound_on_them_is_no_wish_for_any(tmp_path: Path) -> None:
    bound = {"limits": {"limits": {"nvidia.com/gpu": 8}}}
    assert (await spec_of(tmp_path, bound, gpus=2))["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "2"}
    assert (await spec_of(tmp_path, bound))["containers"][0]["resources"]["limits"] == {}


def placed(**task: Any) -> dict[str, Any]:
    return gpu_placement(EnvironmentConfig(**task), SandboxConfig.model_validate(NODES | {"nodeSelector": {"a": "b"}}))


def test_gpu_types_choose_nodes_by_label() -> None:
    assert placed(gpus=1) == placed(gpus=0, gpu_types=["H100"]) == {}
    assert placed(gpus=1, gpu_types=["h100"]) == {"nodeSelector": {"a": "b", "gpu": "h100"}}
    assert placed(gpus=1, gpu_types=["T4", "A100"]) == {"nodeSelector": {"a": "b", "gpu": "a100", "memory": "80"}}


def test_any_of_several_gpu_types_will_do() -> None:
    required = placed(gpus=1, gpu_types=["H100", "A100"])["affinity"]["nodeAffinity"]
    terms = required["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert [[one["key"] for one in term["matchExpressions"]] for term in terms] == [["gpu"], ["gpu", "memory"]]


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def on_nodes(*terms: Any) -> dict[str, Any]:
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}}


ZONES = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]} for zone in ("a", "b")]


@pytest.mark.parametrize(
    ("overrides", "found"),
    [
        (on_nodes(*ZONES), [["gpu", "zone"], ["gpu", "zone"], ["gpu", "memory", "zone"], ["gpu", "memory", "zone"]]),
        (on_nodes({"matchFields": [{"key": "metadata.name"}]}), [["gpu"], ["gpu", "memory"]]),
        (on_nodes(), [["gpu"], ["gpu", "memory"]]),
        ({"affinity": {"podAntiAffinity": {"x": 1}}}, [["gpu"], ["gpu", "memory"]]),
        ({"affinity": None}, [["gpu"], ["gpu", "memory"]]),
        ({"affinity": {"nodeAffinity": {REQUIRED: None}}}, [["gpu"], ["gpu", "memory"]]),
    ],
)
async def test_the_jobs_own_wishes_for_nodes_never_replace_those_for_several_gpu_types(
    overrides: dict[str, Any], found: list[list[str]], tmp_path: Path
) -> None:
    spec = await spec_of(tmp_path, NODES | {"podOverrides": overrides}, gpus=1, gpu_types=["H100", "A100"])
    terms = spec["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    assert [[one["key"] for one in term["matchExpressions"]] for term in terms] == found
    theirs = [field for term in terms for field in term.get("matchFields", ())]
    assert theirs == [{"key": "metadata.name"}] * (2 if "matchFields" in str(overrides) else 0)
    assert spec["affinity"].get("podAntiAffinity") == (overrides["affinity"] or {}).get("podAntiAffinity")


async def test_without_gpu_types_the_jobs_own_affinity_is_as_it_says(tmp_path: Path) -> None:
    overrides = on_nodes(*ZONES)
    assert (await spec_of(tmp_path, NODES | {"podOverrides": overrides}))["affinity"] == overrides["affinity"]


@pytest.mark.parametrize("selector", [{"gpu": "t4"}, {"gpu": None}, None])
async def test_a_node_selector_that_would_replace_that_of_a_gpu_type_is_refused(selector: Any, tmp_path: Path) -> None:
    config = NODES | {"podOverrides": {"nodeSelector": selector}}
    with pytest.raises(SandboxStartError, match=r"GpuTypeOverridden.*gpu=h100.*nodeSelector.*leave gpu out"):
        await spec_of(tmp_path, config, gpus=1, gpu_types=["H100"])
    other = NODES | {"podOverrides": {"nodeSelector": {"zone": "a"}}}
    spec = await spec_of(tmp_path, other, gpus=1, gpu_types=["H100"])
    assert spec["nodeSelector"] == {"gpu": "h100", "zone": "a"}


def test_a_gpu_type_that_the_cluster_has_not_is_refused_by_name() -> None:
    with pytest.raises(SandboxStartError, match=r"GpuTypeUnknown.*T4 or L4.*A100, H100.*add the labels"):
        placed(gpus=1, gpu_types=["T4", "L4"])


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ({"tpu": {"type": "v6e", "topology": "2x4"}}, "TPU"),
        ({"os": "windows"}, "Windows"),
        ({"network_mode": "allowlist", "allowed_hosts": ["*.example.com"]}, "wildcard"),
    ],
)
async def test_what_a_pod_cannot_be_is_refused_when_the_trial_is_built(
    task: dict[str, Any], said: str, tmp_path: Path
) -> None:
    asked = EnvironmentConfig(**task)
    async with provided(SandboxApi(), tmp_path) as provider:
        with pytest.raises((RuntimeError, ValueError), match=said):
            sandbox_of(provider, tmp_path, asked.resolve_baseline(), **task)


async def test_a_task_of_several_containers_is_refused_when_the_trial_is_built(tmp_path: Path) -> None:
    (tmp_path / "task" / "environment").mkdir(parents=True)
    (tmp_path / "task" / "environment" / "docker-compose.yaml").write_text("services: {}")
    async with provided(SandboxApi(), tmp_path) as provider:
        with pytest.raises(ValueError, match="one container"):
            sandbox_of(provider, tmp_path)


async def test_env_reaches_commands_and_the_workdir_is_where_they_start(tmp_path: Path) -> None:
    api = SandboxApi()
    said: list[str] = []
    async with provided(api, tmp_path) as provider:
        sandbox = sandbox_of(provider, tmp_path, env={"LEVEL": "3"})
        await sandbox.start(force_build=False)

        def note(_: str, argv: list[str]) -> tuple[int, str]:
            said.extend(argv)
            return 0, ""

        api.answer = note
        await sandbox.exec("true")
    assert any("export LEVEL=3" in word and "cd /app" in word for word in said)


@pytest.mark.parametrize(("own", "budget"), [(100.0, 95.0), (6000.0, 600.0)])
async def test_build_timeout_shortens_the_start_and_the_reason_comes_before_harbor_gives_up(
    own: float, budget: float, tmp_path: Path
) -> None:
    async with provided(SandboxApi(), tmp_path) as provider:
        assert sandbox_of(provider, tmp_path, build_timeout_sec=own).start_budget_s() == budget


async def test_network_modes_are_labels_that_policies_select(tmp_path: Path) -> None:
    closed = NetworkPolicy(network_mode=NetworkMode.NO_NETWORK)
    async with provided(SandboxApi(), tmp_path) as provider:
        for network, label in ((NetworkPolicy(), None), (closed, "none")):
            sandbox = sandbox_of(provider, tmp_path, network)
            await sandbox.network.prepare(network, (), "image:1")
            assert sandbox.manifest()["metadata"]["labels"].get("harborrl.dev/network") == label


async def test_a_verifier_with_an_image_of_its_own_never_runs_in_the_default_one(tmp_path: Path) -> None:
    """Its tests are in that image: in another one they would be missing, and the agent would be graded 0."""
    async with provided(SandboxApi(), tmp_path, {"images": {"map": {"mapped/tests": "verifier:1"}}}) as provider:
        for task in ("mapped", "task"):
            sandbox = sandbox_of(provider, tmp_path)
            sandbox.environment_dir = tmp_path / task / "tests"
            sandbox._enable_environment_dir_upload = False
            if task == "mapped":
                assert sandbox.image() == "verifier:1"
            else:
                with pytest.raises(SandboxStartError, match="NoImage: task/tests names no docker_image"):
                    sandbox.image()
