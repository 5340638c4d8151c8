"""A path on a command line that is not there is a wrong command line, not a fault of the job or of its data."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from harborrl_cli.__main__ import app
from support.permissions import unprivileged_folder

MANIFEST = Path(__file__).resolve().parents[2] / "examples" / "quickstart" / "job.yaml"


def said(*words: object) -> str:
    done = CliRunner().invoke(app, [str(one) for one in words])
    assert (done.exit_code, done.stdout) == (2, "")
    return done.stderr


@pytest.mark.parametrize(
    ("option", "given", "problem"),
    [
        ("--task-root", "gone", "does not exist; correct it"),
        ("--task-root", "file", "is no folder; correct it"),
        ("--data", "gone", "does not exist; correct it"),
        ("--data", "folder", "is a folder; correct it"),
    ],
)
def test_validate_refuses_a_path_that_is_not_there(tmp_path: Path, option: str, given: str, problem: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    assert said("validate", MANIFEST, option, tmp_path / given) == f"{option}: {tmp_path / given} {problem}\n"


@pytest.mark.parametrize("option", ["--task-root", "--data"])
def test_validate_takes_no_empty_path_for_the_current_directory(option: str) -> None:
    assert "is empty" in said("validate", MANIFEST, option, "")


def test_data_prepare_refuses_a_task_root_that_is_not_there(tmp_path: Path) -> None:
    root, rows = tmp_path / "gone", tmp_path / "in.jsonl"
    rows.touch()
    words = ("data", "prepare", "--input", rows, "--output", tmp_path / "out.jsonl", "--task-root", root)
    assert said(*words) == f"--task-root: {root} does not exist; correct it\n"


@pytest.mark.parametrize(("option", "name"), [("--task-root", "closed"), ("--data", "closed.jsonl")])
def test_what_may_not_be_read_is_said_to_be_closed(option: str, name: str) -> None:
    with unprivileged_folder() as folder:
        (folder / "closed").mkdir(mode=0)
        (folder / "closed.jsonl").touch(mode=0)
        try:
            found = said("validate", MANIFEST, option, folder / name)
        finally:
            (folder / "closed").chmod(0o700)
    assert found == f"{option}: {folder / name} may not be read; make it readable or correct it\n"
