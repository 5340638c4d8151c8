"""The rollout layer also runs inside Miles' image: Python 3.10 syntax, standard library and httpx only."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROLLOUT = Path(__file__).resolve().parents[2] / "trainer" / "harborrl_trainer" / "rollout"
MODULES = sorted(ROLLOUT.glob("*.py"))

LIST_FOREIGN_MODULES = """
import sys
before = set(sys.modules)
import httpx
allowed = set(sys.modules) | before
import {modules}
loaded = {{name.split(".")[0] for name in set(sys.modules) - allowed}}
print(sorted(loaded - sys.stdlib_module_names - {{"harborrl_trainer"}}))
print(sorted(name for name in sys.modules if name.startswith("harborrl_trainer.") and ".rollout" not in name))
"""


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_every_module_parses_as_python_3_10(path: Path) -> None:
    ast.parse(path.read_text(), feature_version=(3, 10))


def test_importing_the_layer_pulls_in_nothing_but_httpx() -> None:
    modules = ", ".join(f"harborrl_trainer.rollout.{path.stem}" for path in MODULES if path.stem != "__init__")
    done = subprocess.run(  # noqa: S603 - our own interpreter with our own text
        [sys.executable, "-c", LIST_FOREIGN_MODULES.format(modules=modules)],
        env={"PYTHONPATH": str(ROLLOUT.parents[1])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["[]", "[]"]
