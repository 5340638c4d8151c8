"""Every selected task can have its sandbox: an image with a legal name, nothing that is not offered, the numbers."""

from pathlib import Path
from typing import Any

import pytest

from harborrl_trainer.preflight.data import check_data
from harborrl_trainer.preflight.findings import Outcome
from support import jobs, reached

IMAGE = "localhost/harborrl/base:dev"


def judge(volumes: Path, toml: str = "", *, files: tuple[str, ...] = (), name: str = "greet", **server: Any) -> Outcome:
    """The preflight's word on one task whose task.toml ends with `toml`."""
    jobs.make_volumes(volumes)
    task = jobs.make_task(volumes / "tasks", name)
    (task / "task.toml").write_text(f'version = "1.0"\n{toml}\n')
    for file in files:
        (task / file).parent.mkdir(exist_ok=True)
        (task / file).write_text("")
    return check_data(jobs.job(volumes, **{f"agentServer__{key}": value for key, value in server.items()}))


def told(outcome: Outcome) -> list[str]:
    reached.note_outcome(outcome)
    assert all(finding.check == "I10" and finding.severity == "refuse" for finding in outcome.findings)
    return [finding.reason for finding in outcome.findings]


UNSUPPORTED = [
    ('[environment]\nos = "windows"', "environment.os"),
    ('[environment]\ntpu = {type = "v5e", topology = "2x2"}', "environment.tpu"),
    ('[environment]\ngpus = 1\ngpu_types = ["H100"]', "environment.gpu_types"),
    ('[environment]\nnetwork_mode = "allowlist"\nallowed_hosts = ["*.hub.example"]', "environment.allowed_hosts"),
    ('[agent]\nnetwork_mode = "allowlist"\nallowed_hosts = ["hub.example", "169.254.169.254"]', "agent.allowed_hosts"),
    ('[verifier]\nnetwork_mode = "allowlist"\nallowed_hosts = ["fd00::/8"]', "verifier.allowed_hosts"),
    ('[[verifier.collect]]\ncommand = "dump"\nservice = "db"', "verifier.collect"),
    ('[verifier.environment]\nos = "Windows"', "verifier.environment.os"),
    ('[[environment.mcp_servers]]\nname = "x"\nurl = "http://x"', "environment.mcp_servers"),
    ('[environment]\nskills_dir = "/skills"', "environment.skills_dir"),
]


@pytest.mark.parametrize(("toml", "field"), UNSUPPORTED, ids=[field for _, field in UNSUPPORTED])
def test_a_field_that_sandboxes_do_not_offer_is_refused_by_name(tmp_path: Path, toml: str, field: str) -> None:
    outcome = judge(tmp_path, toml)
    assert told(outcome) == ["TaskUnsupported"]
    assert f"greet ({field})" in outcome.findings[0].message


def test_a_compose_file_is_refused_by_name(tmp_path: Path) -> None:
    outcome = judge(tmp_path, files=("environment/docker-compose.yaml",))
    assert "greet (environment/docker-compose.yaml)" in outcome.findings[0].message


@pytest.mark.parametrize(
    "toml",
    [
        '[environment]\nnetwork_mode = "no-network"\n[agent]\nnetwork_mode = "no-network"',
        '[environment]\nos = "Linux"\ngpus = 1',
        '[environment]\ngpu_types = ["H100"]',
        '[environment]\nnetwork_mode = "allowlist"\nallowed_hosts = ["hub.example", "203.0.113.7", "0.0.0.0/0"]',
        '[environment]\nallow_internet = false\n[agent]\nnetwork_mode = "public"\n[verifier]\nnetwork_mode = "public"',
        '[[verifier.collect]]\ncommand = "dump"',
        "[environment]\ngpus = 1\ngpu_types = 3\n[verifier]\ncollect = 1",
        '[environment]\nnetwork_mode = "allowlist"\nallowed_hosts = 7',
        "[environment]\nallow_internet = false",
        "[environment]\nmcp_servers = []",
    ],
)
def test_what_sandboxes_do_offer_passes(tmp_path: Path, toml: str) -> None:
    assert told(judge(tmp_path, toml)) == []


def test_a_private_network_that_is_none_opens_nothing(tmp_path: Path) -> None:
    toml = '[environment]\nnetwork_mode = "allowlist"\nallowed_hosts = ["10.2.3.4"]'
    assert told(judge(tmp_path, toml, sandbox={"privateHosts": ["10.2.0.0/99"]})) == ["TaskUnsupported"]


@pytest.mark.parametrize(
    ("toml", "sandbox"),
    [
        ('[environment]\ngpus = 1\ngpu_types = ["T4", "h100"]', {"nodeSelectorForGpu": {"H100": {"gpu": "h100"}}}),
        ('[environment]\nnetwork_mode = "allowlist"\nallowed_hosts = ["10.2.3.4"]', {"privateHosts": ["10.2.0.0/16"]}),
    ],
)
def test_what_the_job_says_the_cluster_has_passes(tmp_path: Path, toml: str, sandbox: dict[str, Any]) -> None:
    assert told(judge(tmp_path, toml, sandbox=sandbox)) == []
    assert told(judge(tmp_path / "without", toml)) == ["TaskUnsupported"]


UNRESOLVED: list[tuple[str, dict[str, Any], str]] = [
    ("no image at all", {"sandboxImage": None, "sandbox": {}}, "names none"),
    ("a template with another word", {"sandbox": {"images": {"template": "r/{id}:1"}}}, "knows only {task} and {hash}"),
    ("a template that is no format", {"sandbox": {"images": {"template": "r/{task"}}}, "knows only {task} and {hash}"),
    ("a template that makes no name", {"sandbox": {"images": {"template": "r/ {task}:1"}}}, "is no image name"),
]


@pytest.mark.parametrize(("server", "said"), [case[1:] for case in UNRESOLVED], ids=[case[0] for case in UNRESOLVED])
def test_a_task_without_an_image_is_refused(tmp_path: Path, server: dict[str, Any], said: str) -> None:
    outcome = judge(tmp_path, **server)
    assert told(outcome) == ["ImageUnresolved"]
    assert said in outcome.findings[0].message


def test_a_dockerfile_alone_is_refused_since_nothing_builds_it(tmp_path: Path) -> None:
    outcome = judge(tmp_path, files=("environment/Dockerfile",))
    assert told(outcome) == ["ImageUnresolved"]
    assert "greet (environment/Dockerfile is not built here)" in outcome.findings[0].message


@pytest.mark.parametrize(
    ("toml", "images"),
    [
        ('[environment]\ndocker_image = "registry.example:5000/team/greet:1.0@sha256:' + "a" * 64 + '"', {}),
        ("", {"map": {"greet": "greet:1"}}),
        ('[task]\nname = "team/greet"', {"map": {"team/greet": "greet:1"}}),
        ("", {"template": "registry.example/{task}:{hash}"}),
    ],
)
def test_an_image_comes_from_task_map_or_template(tmp_path: Path, toml: str, images: dict[str, Any]) -> None:
    outcome = judge(tmp_path, toml, files=("environment/Dockerfile",), sandbox={"images": images}, sandboxImage=None)
    assert told(outcome) == []


def test_a_directory_in_capitals_makes_no_image_name_of_a_template(tmp_path: Path) -> None:
    outcome = judge(tmp_path, name="Greet", sandbox={"images": {"template": "registry.example/{task}:1"}})
    assert "'registry.example/Greet:1' is no image name" in outcome.findings[0].message


def test_a_task_above_the_limits_is_refused_with_both_numbers(tmp_path: Path) -> None:
    outcome = judge(tmp_path, "[environment]\nmemory_mb = 2048", sandbox={"limits": {"limits": {"memory": "1Gi"}}})
    assert told(outcome) == ["TaskTooLarge"]
    assert "greet (memory 2147483648 > 1Gi)" in outcome.findings[0].message
    assert told(judge(tmp_path / "more", "[environment]\nmemory_mb = 1024")) == []


def test_the_largest_amounts_of_any_task_are_told(tmp_path: Path) -> None:
    jobs.make_volumes(tmp_path)
    for name, toml in (("a", "cpus = 2\nmemory_mb = 64"), ("b", 'cpus = 0.5\nmemory = "1G"\ngpus = 1')):
        (jobs.make_task(tmp_path / "tasks", name) / "task.toml").write_text(f"[environment]\n{toml}\n")
    facts = check_data(jobs.job(tmp_path, agentServer__sandbox={})).facts
    assert facts["sandboxes"] == {
        "requests": {"cpu": "2", "memory": "1073741824", "nvidia.com/gpu": "1"},
        "limits": {"memory": "1073741824", "nvidia.com/gpu": "1"},
        "unset": [],
        "unlimited": ["cpu"],
    }


def test_a_resource_that_some_task_leaves_out_is_told(tmp_path: Path) -> None:
    outcome = judge(tmp_path, "[environment]\ncpus = 0.02", sandbox={})
    assert outcome.facts["sandboxes"] == {
        "requests": {"cpu": "20m"},
        "limits": {},
        "unset": ["memory"],
        "unlimited": ["cpu", "memory"],
    }


@pytest.mark.parametrize("server", [{"owned": False}, {"sandbox": {"backend": "local"}}])
def test_sandboxes_that_are_not_our_pods_are_not_judged(tmp_path: Path, server: dict[str, Any]) -> None:
    outcome = judge(tmp_path, '[environment]\nos = "windows"', **server)
    assert told(outcome) == []
    assert "sandboxes" not in outcome.facts
