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


@pytest.mark.parametrize(
    ("option", "below"),
    [("--config", ""), ("--revision", ""), ("--glob", ""), ("--revision", "tasks"), ("--config", "tasks")],
)
def test_an_option_that_the_input_has_no_use_for_is_not_ignored(source: Path, option: str, below: str) -> None:
    (source.parent / "tasks" / "a").mkdir(parents=True)
    (source.parent / "tasks" / "a" / "instruction.md").write_text("do it")
    done = harborrl(source, "--input", source.parent / below if below else source, option, "x")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == f"{option}: 'x' chooses nothing in this input; leave it out\n"


@pytest.mark.parametrize("pattern", ["/etc/*", "../*", "."])
def test_a_pattern_that_leads_out_of_the_folder_is_a_wrong_command_line(source: Path, pattern: str) -> None:
    done = harborrl(source, "--input", source.parent, "--glob", pattern)
    said = f"--glob: '{pattern}' is not a relative path below the folder; name one that is\n"
    assert (done.exit_code, done.stdout, done.stderr) == (2, "", said)


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("zzz*", "no task directory matches --glob 'zzz*'; correct one of them"),
        ("a**", "cannot list tasks with glob 'a**' (Invalid pattern: '**' can only be an entire path component)"),
    ],
)
def test_a_pattern_that_matches_nothing_is_named(source: Path, pattern: str, said: str) -> None:
    done = harborrl(source, "--input", source.parent, "--glob", pattern)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith(f"{source.parent}: {said}")
    assert "data.tasks" not in done.stderr
