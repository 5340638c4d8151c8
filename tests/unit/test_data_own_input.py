"""`harborrl data prepare` onto its own input: what it would drop would be gone for good."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from harborrl_cli.__main__ import app

ROOT = Path(__file__).resolve().parents[2]
ROWS = '{"instance_id": "a", "problem_statement": "do it"}\nnot JSON\n'


@pytest.mark.parametrize("link", [None, Path.symlink_to, Path.hardlink_to])
@pytest.mark.parametrize("through_folder", [False, True])
def test_an_output_that_is_the_input_is_refused_and_keeps_what_would_be_dropped(
    tmp_path: Path, link: Callable[[Path, Path], None] | None, through_folder: bool
) -> None:
    (tmp_path / "in").mkdir()
    source = tmp_path / "in" / "train.jsonl"
    source.write_text(ROWS)
    before, target = source.read_bytes(), source
    if link is not None:
        target = tmp_path / "out.jsonl"
        link(target, source)
    words = ["data", "prepare", "--input", source.parent if through_folder else source, "--output", target]
    done = CliRunner().invoke(app, list(map(str, words)))
    assert (done.exit_code, done.stdout) == (1, "")
    assert "is the input as well (train.jsonl)" in done.stderr
    assert done.stderr.endswith("choose another --output\n")
    assert source.read_bytes() == before


def test_standard_input_that_is_the_output_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "train.jsonl"
    source.write_text(ROWS)
    command = [sys.executable, "-m", "harborrl_cli", "data", "prepare", "--input", "-", "--output", str(source)]
    before = source.read_bytes()
    paths = os.pathsep.join(str(ROOT / part) for part in ("cli", "trainer", "operator"))
    with source.open() as file:
        done = subprocess.run(  # noqa: S603 - our own module
            command, stdin=file, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=False
        )
    assert done.returncode == 1
    assert "is the input as well (stdin)" in done.stderr
    assert source.read_bytes() == before
