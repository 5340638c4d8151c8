"""docs/testing.md names, for each report about others and each promise of ours, a test that exists."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NAMED = re.compile(r"`(tests/[\w/]+\.py)::([\w:]+)`")
ROW = re.compile(r"^\| (?P<reports>[^|]*#\d[^|]*) \| (?P<what>[^|]+) \| (?P<shown>[^|]+) \|$")
PROMISES = "## What the agent server promises"
NOT_OFFERED = "not offered: "


def rows() -> list[re.Match[str]]:
    page = (ROOT / "docs" / "testing.md").read_text()
    found = [ROW.match(line) for line in page.splitlines() if "#" in line and line.startswith("|")]
    assert None not in found
    return [row for row in found if row is not None]


def functions_of(path: Path) -> set[str]:
    """Functions, and methods as `Class::method`."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            methods = (one for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef))
            found |= {f"{node.name}::{method.name}" for method in methods}
    return found


def test_each_report_names_a_test_or_why_there_is_none() -> None:
    silent = [
        row["reports"] for row in rows() if not NAMED.search(row["shown"]) and not row["shown"].startswith(NOT_OFFERED)
    ]
    assert silent == []
    assert len(rows()) > 40


def test_each_named_test_exists() -> None:
    missing = []
    for name, test in NAMED.findall((ROOT / "docs" / "testing.md").read_text()):
        path = ROOT / name
        if not path.exists() or test not in functions_of(path) or "test" not in test:
            missing.append(f"{name}::{test}")
    assert missing == []


def test_each_promise_names_a_test_and_nothing_else_is_taken_for_proof() -> None:
    section = (ROOT / "docs" / "testing.md").read_text().split(PROMISES)[1].split("\n## ")[0]
    table = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")][1:]
    assert len(table) > 20
    assert [promise for promise, shown in table if not NAMED.search(shown)] == []
    assert [shown for _, shown in table if NAMED.sub("", shown).replace(",", "").strip()] == []


def test_nothing_else_is_taken_for_proof() -> None:
    for row in rows():
        left = NAMED.sub("", row["shown"]).replace(",", "").strip()
        assert not left or left.startswith(NOT_OFFERED), left


def test_no_report_is_told_twice_in_the_same_words() -> None:
    told = [row["what"] for row in rows()]
    assert sorted(set(told)) == sorted(told)
