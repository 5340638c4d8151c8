"""The quickstart's files agree with each other and with the rules that the product enforces."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from harbor.models.task.task import Task

from harborrl_operator.checks import first_objection
from harborrl_operator.resolve import resolve
from support import hrl

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/quickstart"
TASKS = sorted(path for path in (EXAMPLE / "tasks").iterdir())
REFUSED_AT_ONCE = {"bad/timeouts.yaml": "BudgetExceedsCeiling", "bad/capacity.yaml": "ConcurrencyBelowInFlight"}
"""The other bad ones are wrong in what their volumes, images and nodes hold."""


def spec(name: str) -> dict[str, Any]:
    (job,) = yaml.safe_load_all((EXAMPLE / name).read_text())
    assert job["kind"] == "HarborRLJob"
    return dict(job["spec"])


@pytest.mark.parametrize(
    "name", ["job.yaml", "learn.yaml", *(f"bad/{path.name}" for path in (EXAMPLE / "bad").glob("*.yaml"))]
)
def test_a_manifest_breaks_no_rule_but_the_one_that_it_is_about(name: str) -> None:
    job = resolve(hrl.job(base=spec(name)), hrl.SETTINGS)
    claims = {volume.pvc: hrl.claim(volume.pvc, "ReadWriteOnce") for volume in job.volumes.values()}
    objection = first_objection(job, hrl.world(claims=claims))
    assert (objection and str(objection.reason)) == REFUSED_AT_ONCE.get(name)


def test_both_runs_give_the_model_the_same_prompt() -> None:
    assert spec("job.yaml")["agentServer"]["agentKwargs"] == spec("learn.yaml")["agentServer"]["agentKwargs"]


def test_the_worked_examples_are_not_the_solution_of_a_task() -> None:
    shown = {message["content"] for message in spec("job.yaml")["agentServer"]["agentKwargs"]["examples"]}
    for task in TASKS:
        for line in (task / "solution/solve.sh").read_text().splitlines()[1:]:
            assert not any(line in content for content in shown)
        assert (task / "instruction.md").read_text().strip() not in shown


def test_the_evaluation_asks_every_task_its_own_instruction() -> None:
    rows = [json.loads(line) for line in (EXAMPLE / "eval.jsonl").read_text().splitlines()]
    assert {row["metadata"]["instance_id"]: row["prompt"] for row in rows} == {
        task.name: (task / "instruction.md").read_text().strip() for task in TASKS
    }
    assert len(rows) * spec("learn.yaml")["eval"]["samplesPerPrompt"] >= 128


@pytest.mark.parametrize("path", TASKS, ids=lambda path: path.name)
def test_harbor_reads_the_task(path: Path) -> None:
    task = Task(path)
    assert task.config.environment.workdir == "/app"
    assert spec("job.yaml")["agentServer"]["sandbox"]["images"]["map"].get(task.config.environment.docker_image)


def test_the_task_without_verifier_has_everything_else() -> None:
    task = EXAMPLE / "bad/data/task-without-verifier/greet"
    assert {path.name for path in task.iterdir()} == {"task.toml", "instruction.md", "environment"}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for folder in ("models/small", "tasks/first", "tasks/second", "bad/empty"):
        (tmp_path / "from" / folder).mkdir(parents=True)
        (tmp_path / "from" / folder / "file").write_text(folder)
    return tmp_path / "from"


def copy(source: Path, target: Path) -> list[str]:
    command = [EXAMPLE / "copy-data", source, target]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - our own script
    return [line.rpartition("/")[2] for line in done.stdout.splitlines() if line.endswith(": copied")]


def test_copying_again_touches_nothing(source: Path, tmp_path: Path) -> None:
    assert copy(source, tmp_path / "to") == ["small: copied", "first: copied", "second: copied", "empty: copied"]
    before = {path: path.stat().st_ino for path in (tmp_path / "to").rglob("*")}
    assert copy(source, tmp_path / "to") == []
    assert {path: path.stat().st_ino for path in (tmp_path / "to").rglob("*")} == before


def test_copying_replaces_what_differs_and_what_a_killed_copy_left(source: Path, tmp_path: Path) -> None:
    to = tmp_path / "to"
    copy(source, to)
    (to / "tasks/first/file").write_text("old")
    (to / "tasks/first/extra").write_text("gone in the new version")
    (to / "tasks/.second.partial").mkdir()
    (to / "models/small/file").unlink()
    assert copy(source, to) == ["small: copied", "first: copied"]
    assert (to / "tasks/first/file").read_text() == "tasks/first"
    assert sorted(path.name for path in (to / "tasks/first").iterdir()) == ["file"]
    assert (to / "models/small/file").exists()
    assert not (to / "tasks/.second.partial").exists()


@pytest.mark.parametrize("name", ["volumes.yaml", "job.yaml", "learn.yaml"])
def test_the_readmes_line_for_another_cluster_renames_every_image(name: str) -> None:
    (line,) = (line for line in (EXAMPLE / "README.md").read_text().splitlines() if line.startswith("sed "))
    program = line.split("'")[1]
    done = subprocess.run(["sed", program, EXAMPLE / name], capture_output=True, text=True, check=True)  # noqa: S603, S607 - our own line
    assert "registry.example/harborrl/base:1" in done.stdout
    assert "localhost" not in done.stdout
