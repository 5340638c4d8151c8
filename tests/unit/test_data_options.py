"""`harborrl data prepare` with options that cannot be meant: one line, exit code 2, and nothing is read or written."""

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from harborrl_cli.__main__ import app

EMPTY = "is empty, as an unset variable of a shell is; give a value"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in.jsonl"
    path.write_text('{"instance_id": "a", "prompt": "do it"}\n')
    return path


def harborrl(source: Path, *words: object) -> Result:
    """The last of an option counts."""
    out = source.with_name("out.jsonl")
    done = CliRunner().invoke(
        app, [str(one) for one in ("data", "prepare", "--input", source, "--output", out, *words)]
    )
    assert not out.exists()
    return done


@pytest.mark.parametrize(
    "option",
    [
        "--input",
        "--output",
        "--split",
        "--config",
        "--revision",
        "--agent-name",
        "--prompt-key",
        "--id-key",
        "--task-root",
        "--glob",
        "--instruction-path",
    ],
)
def test_an_empty_option_is_a_wrong_command_line_and_no_current_directory(source: Path, option: str) -> None:
    done = harborrl(source, option, "")
    assert (done.exit_code, done.stdout, done.stderr) == (2, "", f"{option}: {EMPTY}\n")


@pytest.mark.parametrize("limit", ["0", "-1", "x"])
def test_a_limit_of_no_row_is_a_wrong_command_line(source: Path, limit: str) -> None:
    assert harborrl(source, "--limit", limit).exit_code == 2


@pytest.mark.parametrize("path", ["../../x.md", "/etc/passwd", "."])
def test_an_instruction_outside_the_task_is_a_wrong_command_line(source: Path, path: str) -> None:
    done = harborrl(source, "--instruction-path", path)
    said = f"--instruction-path: '{path}' is not a relative path below the task; name one that is\n"
    assert (done.exit_code, done.stdout, done.stderr) == (2, "", said)


def test_an_output_whose_name_miles_would_not_read_is_a_wrong_command_line(source: Path) -> None:
    done = harborrl(source, "--output", source.with_name("out.json"))
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("--output: ")
    assert done.stderr.endswith("out.json must end in .jsonl, the suffix by which Miles chooses its reader\n")
