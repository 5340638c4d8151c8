"""The source roots stay import roots: a module or a test lying loose in one shadows the standard library."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE_ROOTS = ("operator", "trainer", "agent_server")


@pytest.mark.parametrize("root", SOURCE_ROOTS)
def test_a_source_root_holds_no_python_file_of_its_own(root: str) -> None:
    assert [path.name for path in (ROOT / root).glob("*.py")] == []


@pytest.mark.parametrize("root", SOURCE_ROOTS)
def test_a_source_root_holds_no_test(root: str) -> None:
    below = (ROOT / root).rglob("*.py")
    assert [str(path) for path in below if path.name.startswith("test_") or path.name.endswith("_test.py")] == []


def test_test_folders_are_named_by_kind_and_are_no_packages() -> None:
    assert list((ROOT / "tests").rglob("__init__.py")) == []
    assert {path.name for path in (ROOT / "tests").iterdir() if path.is_dir() and path.name != "__pycache__"} <= {
        "unit",
        "contract",
        "api",
        "browser",
        "cluster",
        "support",
        "data",
    }
