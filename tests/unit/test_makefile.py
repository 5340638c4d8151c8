"""What `make` and its scripts run, tried with programs that only tell that they were called."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def script(path: Path, body: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The Makefile, and a script that makes environments whose Python writes what it is asked to run into `called`."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "requirements").mkdir()
    for name in ("demo", "dev"):
        (tmp_path / "requirements" / f"{name}.txt").touch()
    for name in ("uv", "python"):
        script(tmp_path / "scripts" / name, "exit 1")
    script(tmp_path / "scripts" / "venv", 'echo "venv $1" >> called; cp -r stub "$1"; touch "$1/ready"')
    script(tmp_path / "scripts" / "may-start", "echo may-start >> called")
    script(tmp_path / "stub" / "bin" / "python", 'echo "$0 $*" >> called')
    return tmp_path


def make(checkout: Path, *arguments: str) -> list[str]:
    """Whatever the Makefile's programs were asked to do."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    command = ["make", "--directory", str(checkout), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)  # noqa: S603 - the list above
    assert done.returncode == 0, done.stderr
    called = checkout / "called"
    return called.read_text().splitlines() if called.exists() else []


def whole(checkout: Path, name: str) -> None:
    shutil.copytree(checkout / "stub", checkout / name)
    (checkout / name / "ready").touch()


@pytest.mark.parametrize("target", ["demo", "learn", "test-e2e", "down"])
def test_a_dry_run_runs_nothing(checkout: Path, target: str) -> None:
    whole(checkout, ".venv")
    assert make(checkout, "--dry-run", target) == []


def test_down_passes_over_an_environment_that_is_half_installed(checkout: Path) -> None:
    shutil.copytree(checkout / "stub", checkout / ".venv")
    assert make(checkout, "down") == ["venv .venv-demo", ".venv-demo/bin/python -m devcluster down"]


def test_down_downloads_nothing_where_an_environment_is_whole(checkout: Path) -> None:
    whole(checkout, ".venv")
    (checkout / "requirements" / "dev.txt").touch()
    assert make(checkout, "down") == [".venv/bin/python -m devcluster down"]


@pytest.mark.parametrize("target", ["demo", "learn", "test", "test-e2e"])
def test_whoever_may_not_start_a_cluster_is_told_before_anything_is_installed(checkout: Path, target: str) -> None:
    script(checkout / "scripts" / "may-start", "exit 1")
    done = subprocess.run(["make", "--directory", str(checkout), target], capture_output=True, check=False)  # noqa: S603, S607 - make is found on PATH
    assert done.returncode != 0
    assert not (checkout / "called").exists()


def test_a_cluster_of_the_users_is_chosen_from_a_fresh_clone(checkout: Path) -> None:
    assert make(checkout, "up", "CONTEXT=prod eu") == [
        "venv .venv-demo",
        ".venv-demo/bin/python -m devcluster up --context prod eu",
    ]
    assert make(checkout, "up")[-1] == ".venv-demo/bin/python -m devcluster up"


@pytest.fixture
def with_tests(checkout: Path) -> Path:
    """A checkout with environments, model and tests."""
    for name in ("requirements/model.txt", "requirements/agent-tools.txt", "examples/quickstart/convert_model.py"):
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).touch()
    for name in ("agent_a", "gateway", "plan", "reasons_reached"):
        (checkout / "tests" / "unit").mkdir(parents=True, exist_ok=True)
        (checkout / "tests" / "unit" / f"test_{name}.py").touch()
    for name in (".venv", ".venv-mini"):
        whole(checkout, name)
    model = checkout / ".venv-model" / "SmolLM2-135M-Instruct" / "config.json"
    model.parent.mkdir(parents=True)
    model.touch()
    return checkout


def test_unit_tests_are_run_in_two_and_what_both_reached_is_looked_at_behind_them(with_tests: Path) -> None:
    *parts, last = [line.split(" -m pytest ")[1] for line in make(with_tests, "test-unit")]
    left, unit = ".pytest_cache/reached", "tests/unit/test_"
    ignored = " ".join(f"--ignore={unit}{name}.py" for name in ("agent_a", "gateway", "reasons_reached"))
    assert sorted(parts) == [
        f"--leave-reached {left}/agents.json {unit}agent_a.py {unit}gateway.py",
        f"--leave-reached {left}/others.json tests/unit {ignored}",
    ]
    assert last == f"{unit}reasons_reached.py --reached {left}/agents.json --reached {left}/others.json"


@pytest.mark.parametrize("target", ["test-unit", "test-fast"])
@pytest.mark.parametrize("failing", ["agents", "others", "reasons_reached"])
def test_a_failure_in_either_part_or_behind_them_fails_the_whole_and_is_shown(
    with_tests: Path, target: str, failing: str
) -> None:
    script(with_tests / ".venv" / "bin" / "python", f'case "$*" in *{failing}*) echo "1 failed"; exit 1; esac')
    command = ["make", "--directory", str(with_tests), target]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)  # noqa: S603 - the list above
    assert done.returncode != 0
    assert "1 failed" in done.stdout


@pytest.mark.parametrize(
    ("user", "programs", "record", "may"),
    [
        (0, [], None, True),
        (1000, [], None, False),
        (1000, ["docker"], None, False),
        (1000, ["docker", "kind"], None, True),
        (1000, [], "own", False),
        (1000, [], "context:prod", True),
    ],
)
def test_only_our_own_node_needs_root(
    tmp_path: Path, *, user: int, programs: list[str], record: str | None, may: bool
) -> None:
    script(tmp_path / "id", f"echo {user}")
    for name in programs:
        script(tmp_path / name, "exit 0")
    grep = shutil.which("grep")
    assert grep is not None
    (tmp_path / "grep").symlink_to(grep)
    if record is not None:
        (tmp_path / "backend").write_text(f"{record}\n")
    environment = {"PATH": str(tmp_path), "HARBORRL_STATE": str(tmp_path), "HOME": "/nowhere"}
    done = subprocess.run(  # noqa: S603 - our own script
        ["/bin/sh", str(ROOT / "scripts" / "may-start")], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode == 0) is may
    assert may or "needs root" in done.stderr


def test_a_machine_that_can_get_no_python_is_told_both_ways_out(tmp_path: Path) -> None:
    shutil.copy(ROOT / "scripts" / "python", tmp_path)
    script(tmp_path / "bin" / "fails", "exit 1")
    script(tmp_path / "uv", f"echo {tmp_path}/bin/fails")
    dirname = shutil.which("dirname")
    assert dirname is not None
    (tmp_path / "bin" / "dirname").symlink_to(dirname)
    command = ["/bin/sh", str(tmp_path / "python")]
    done = subprocess.run(command, env={"PATH": str(tmp_path / "bin")}, capture_output=True, text=True, check=False)  # noqa: S603 - the list above
    assert done.returncode == 1
    assert "Install Python 3.12" in done.stderr
    assert "UV_PYTHON_INSTALL_MIRROR" in done.stderr
