"""Rules about the tree itself that no linter knows."""

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
SCRAP = re.compile(r'^\s+f?" ?[^\s"{|]{1,15}"\n\s+f?"|^\s+f"[^"{]*"$', re.MULTILINE)
"""A line of one word between others of a sentence, or an f-string that fills nothing in."""
EXEMPTION = re.compile(r"#\s*(?:noqa: [A-Z0-9, ]+|type: ignore(?:\[[a-z-]+\])?)(?P<rest>.*)$")


def files(suffix: str, root: Path = ROOT) -> list[Path]:
    """What git tracks or would add: nothing that is built or installed into a checkout, whatever its name."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)  # noqa: S603 - the list above
    if listed.returncode != 0:
        pytest.skip(f"only a git checkout tells what belongs to it: {listed.stderr.strip()}")
    found = {root / name for name in listed.stdout.split("\0") if name.endswith(suffix)}
    assert found
    return sorted(path for path in found if path.is_file())


def test_what_is_installed_into_a_checkout_is_not_judged(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)  # noqa: S603, S607 - git is found on PATH, the folder is ours
    shutil.copy(ROOT / ".gitignore", tmp_path)
    for name in (".venv", ".venv-demo", ".venv-model", ".venv-mini", "tests"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "module.py").touch()
    assert files(".py", tmp_path) == [tmp_path / "tests" / "module.py"]


def test_what_is_installed_is_not_linted_in_a_tree_without_git_either(tmp_path: Path) -> None:
    ruff = shutil.which("ruff", path=Path(sys.executable).parent)
    assert ruff is not None
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for name in (".venv", ".venv-demo", ".venv-model", ".venv-mini", "tests"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "module.py").touch()
    command = [ruff, "check", "--show-files", "."]
    listed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)  # noqa: S603 - the list above
    assert [Path(line).parent.name for line in listed.stdout.split() if line.endswith(".py")] == ["tests"]


def test_every_relative_link_of_the_documentation_leads_to_a_file() -> None:
    dead = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in files(".md")
        for target in LINK.findall(page.read_text())
        if "://" not in target and not target.startswith(("#", "mailto:"))
        if not (page.parent / target.partition("#")[0]).exists()
    ]
    assert dead == []


def test_no_sentence_is_cut_into_scraps() -> None:
    """A message is the user's documentation, and has to be read as one in the source too."""
    cut = [
        f"{path.relative_to(ROOT)}: {found[0].strip()}"
        for path in files(".py")
        if path.is_relative_to(ROOT / "operator") or path.is_relative_to(ROOT / "trainer")
        for found in SCRAP.finditer(path.read_text())
    ]
    assert cut == []


def test_every_exemption_from_a_rule_says_why() -> None:
    silent = [
        f"{source.relative_to(ROOT)}:{number}"
        for source in files(".py")
        for number, line in enumerate(source.read_text().splitlines(), 1)
        if (exemption := EXEMPTION.search(line)) and not re.search(r"[a-z]{3}", exemption["rest"])
    ]
    assert silent == []


def test_modules_and_functions_stay_short_enough_to_be_read_whole() -> None:
    long = []
    for source in files(".py"):
        text = source.read_text()
        if text.count("\n") > 400:
            long.append(str(source.relative_to(ROOT)))
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or 0) - node.lineno + 1
                if lines > 40:
                    long.append(f"{source.relative_to(ROOT)}: {node.name} has {lines} lines")
    assert long == []


def test_a_checkout_holds_no_large_file() -> None:
    assert [str(path) for path in files("") if path.stat().st_size > 1_000_000] == []


def test_each_decision_has_a_number_of_its_own_that_its_title_repeats() -> None:
    pages = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    numbers = [page.name[:4] for page in pages]
    assert sorted(set(numbers)) == numbers
    assert [page.name for page in pages if not page.read_text().startswith(f"# {page.name[:4]}")] == []
