"""What is copied into Miles' container: Python 3.10, the standard library and httpx."""

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harborrl_trainer.errors import ConfigurationError
from harborrl_trainer.miles_engine import plan as plans
from harborrl_trainer.miles_engine.export import PACKAGE, PARTS, SOURCE, export
from harborrl_trainer.miles_engine.plan import Checks, Ending, Plan, Retention, Seal, Server, SetAside

FILES = sorted(
    path for part in PARTS for path in ([SOURCE / part] if part.endswith(".py") else (SOURCE / part).rglob("*.py"))
)
OURS = ("harborrl_trainer.miles_engine", "harborrl_trainer.miles", "harborrl_trainer.rollout")
"""The engine, and the settings of the rollout process, which it judges before Miles starts."""
IMPORT_ALL = """
import sys
import harborrl_trainer.miles_engine.__main__, harborrl_trainer.miles_engine.driver
import harborrl_trainer.miles_engine.parser_preflight
ours = {name for name in sys.modules if name.startswith("harborrl_trainer.")}
foreign = {name.split(".")[0] for name in sys.modules} - sys.stdlib_module_names - {"harborrl_trainer", "__main__"}
print(sorted(name for name in foreign if not name.startswith(("_", "sitecustomize"))))
print(sorted(ours - {"harborrl_trainer.errors", "harborrl_trainer.failures", "harborrl_trainer.files"}))
"""


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_every_copied_module_parses_as_python_3_10(path: Path) -> None:
    ast.parse(path.read_text(), feature_version=(3, 10))


def test_the_driver_imports_the_standard_library_alone(tmp_path: Path) -> None:
    export(tmp_path)
    found = _python([sys.executable, "-S"], tmp_path, IMPORT_ALL)
    foreign, ours = found.splitlines()
    assert foreign == "[]"
    assert [name for name in ast.literal_eval(ours) if not name.startswith(OURS)] == []


def test_the_copy_runs_on_python_3_10_itself(tmp_path: Path) -> None:
    python = shutil.which("python3.10")
    if python is None or _version(python) != "3.10":
        pytest.skip("there is no Python 3.10 on this machine")
    export(tmp_path)
    path = tmp_path / "plan.json"
    path.write_text(plans.dump(Plan(1, 1, ending=Ending(65, "said before"))))
    done = subprocess.run(  # noqa: S603 - our own command
        [python, "-m", "harborrl_trainer.miles_engine", str(path)],
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert (done.returncode, done.stdout.strip()) == (65, "said before"), done.stderr


def test_a_copy_is_replaced_whole_and_holds_nothing_of_the_job_document(tmp_path: Path) -> None:
    (tmp_path / PACKAGE).mkdir()
    (tmp_path / PACKAGE / "old.py").touch()
    place = export(tmp_path)
    assert not (place / "old.py").exists()
    assert not (place / "job.py").exists()
    assert not (place / "native").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == [PACKAGE]


def test_a_plan_is_read_as_it_was_written(tmp_path: Path) -> None:
    plan = Plan(
        2,
        3,
        argv=("train.py", "--x", "1"),
        env={"A": "b"},
        roots=("/root/miles",),
        checks=Checks(server=Server("http://a", owned=False, slots=8), ports=(1, 2), readable=("/m",), nodes=2),
        seals=(Seal("/c", 3, data_state=False),),
        set_aside=(SetAside("/c/iter_0000001", "short"),),
        retention=Retention(keep=2, index="/i", older=((1, "/c/iter_0000001"),), leftovers=("/x",)),
        notices=("a",),
    )
    path = tmp_path / "plan.json"
    path.write_text(plans.dump(plan))
    assert plans.load(path) == plan


@pytest.mark.parametrize("text", ["", "{}", "[]", json.dumps({"schemaVersion": 9})])
def test_what_is_no_plan_is_refused_with_a_sentence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match="no plan of this version"):
        plans.load(path)


def _python(command: list[str], path: Path, code: str) -> str:
    done = subprocess.run(  # noqa: S603 - our own interpreter with our own text
        [*command, "-c", code], env={"PYTHONPATH": str(path)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _version(python: str) -> str:
    code = "import sys; print('.'.join(map(str, sys.version_info[:2])))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)  # noqa: S603 - as found on PATH
    return done.stdout.strip()
