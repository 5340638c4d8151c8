"""`harborrl data prepare`: one pass, an output that is whole or untouched, and a report of every row."""

import ast
import itertools
import json
import logging
import os
import re
import resource
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harborrl_trainer.data import output
from harborrl_trainer.data.prepare import Order, prepare
from harborrl_trainer.data.rows import Converter
from harborrl_trainer.data.sources import Input, Part
from harborrl_trainer.errors import ConfigurationError
from harborrl_trainer.prompts import read_jsonl
from support.data_command import command_line, flat, harborrl, ids, report, write
from support.miles_upstream import miles_file
from support.permissions import unprivileged_folder

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out" / "train.jsonl"


def test_every_row_is_written_or_counted_by_its_cause(tmp_path: Path, out: Path) -> None:
    rows = write(
        tmp_path / "in.jsonl", flat("a", reward=1), "{nope", "", flat("../b"), flat("a"), flat("c", ""), flat("d")
    )
    found = report("--input", rows, "--output", out)
    assert ids(out) == ["a", "d"]
    assert (found["exit"], found["changed"], found["read"], found["written"]) == (0, True, 6, 2)
    assert {one["cause"]: one["first"] for one in found["dropped"]} == {
        "not JSON": ["in.jsonl:2"],
        "invalid instance id": ["in.jsonl:4"],
        "duplicate instance id": ["in.jsonl:5"],
        "empty prompt": ["in.jsonl:6"],
    }
    assert found["stripped"] == {"reward": 1}
    assert found["read"] == found["written"] + sum(one["rows"] for one in found["dropped"])


def test_the_report_for_people_says_the_same(tmp_path: Path, out: Path) -> None:
    rows = write(tmp_path / "in.jsonl", flat("a", reward=1), *["nope"] * 12)
    done = harborrl("--input", rows, "--output", out)
    assert done.exit_code == 0
    assert "12 dropped, not JSON: in.jsonl:2, in.jsonl:3" in done.stdout
    assert "and 2 more" in done.stdout
    assert "metadata.reward stripped from 1 rows" in done.stdout
    assert f"{out}: 1 rows written" in done.stdout


def test_what_was_stripped_is_told_in_the_same_order_in_each_run(tmp_path: Path, out: Path) -> None:
    keys = ("reward", "model", "messages", "deadline_s", "base_url")
    rows = write(tmp_path / "in.jsonl", flat("a") | dict.fromkeys(keys, 1), flat("b", reward=1, model=1))
    found = [
        subprocess.run(  # noqa: S603 - ours
            command_line(rows, out), env={**environment(), "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    ]
    assert found[0] == found[1]
    stripped = list(report("--input", rows, "--output", out)["stripped"])
    assert stripped == ["model", "reward", "base_url", "deadline_s", "messages"]


def test_when_every_row_is_dropped_nothing_is_written_and_the_exit_code_says_so(tmp_path: Path, out: Path) -> None:
    write_old(out)
    done = harborrl("--input", write(tmp_path / "in.jsonl", "nope", "[]"), "--output", out)
    assert done.exit_code == 1
    assert "every one of 2 rows was dropped; nothing was written" in done.stderr
    assert ids(out) == ["old"]
    assert harborrl("--input", write(tmp_path / "in.jsonl"), "--output", out).exit_code == 1


def write_old(out: Path) -> str:
    out.parent.mkdir(exist_ok=True)
    write(out, {"prompt": "p", "metadata": {"instance_id": "old"}})
    return out.read_text()


def test_strict_writes_nothing_when_a_row_is_dropped(tmp_path: Path, out: Path) -> None:
    done = harborrl("--input", write(tmp_path / "in.jsonl", flat("a"), "nope"), "--output", out, "--strict")
    assert done.exit_code == 1
    assert "1 of 2 rows would be dropped" in done.stderr
    assert not out.exists()


def test_the_limit_counts_rows_that_are_written(tmp_path: Path, out: Path) -> None:
    rows = write(tmp_path / "in.jsonl", "nope", flat("a"), flat("a"), flat("b"), flat("c"))
    found = report("--input", rows, "--output", out, "--limit", 2)
    assert ids(out) == ["a", "b"]
    assert found["stoppedAtLimit"]
    assert not report("--input", rows, "--output", out, "--limit", 3)["stoppedAtLimit"]


def test_ids_are_compared_with_the_task_root(tmp_path: Path, out: Path) -> None:
    root = tmp_path / "tasks"
    for name in ("a", "b", "empty"):
        (root / name).mkdir(parents=True)
    (root / "a" / "task.toml").touch()
    (root / "b" / "instruction.md").touch()
    rows = write(tmp_path / "in.jsonl", flat("a"), flat("b"), flat("empty"), flat("gone"))
    found = report("--input", rows, "--output", out, "--task-root", root)
    assert ids(out) == ["a", "b"]
    assert found["dropped"] == [{"cause": "no task directory", "rows": 2, "first": ["in.jsonl:3", "in.jsonl:4"]}]
    done = harborrl("--input", rows, "--output", out, "--task-root", root / "empty")
    assert (done.exit_code, "holds no task directory" in done.stderr) == (1, True)


def test_a_dry_run_reports_and_leaves_everything_alone(tmp_path: Path, out: Path) -> None:
    found = report("--input", write(tmp_path / "in.jsonl", flat("a")), "--output", out, "--dry-run")
    assert (found["written"], found["changed"]) == (1, False)
    assert not out.parent.exists()


def test_a_task_that_may_not_be_entered_is_counted_as_dropped() -> None:
    with unprivileged_folder() as folder:
        for name in ("closed", "open"):
            (folder / "tasks" / name).mkdir(parents=True)
            (folder / "tasks" / name / "instruction.md").write_text("do it")
        (folder / "tasks" / "closed").chmod(0)
        try:
            found = report("--input", folder / "tasks", "--output", folder / "x.jsonl", "--task-root", folder / "tasks")
        finally:
            (folder / "tasks" / "closed").chmod(0o700)
        assert (found["exit"], found["written"]) == (0, 1)
        assert [one["rows"] for one in found["dropped"]] == [1]


def test_without_append_the_file_is_replaced_and_keeps_its_mode(tmp_path: Path, out: Path) -> None:
    write_old(out)
    out.chmod(0o640)
    link = tmp_path / "link.jsonl"
    link.symlink_to(out)
    assert harborrl("--input", write(tmp_path / "in.jsonl", flat("a")), "--output", link).exit_code == 0
    assert ids(out) == ["a"]
    assert link.is_symlink()
    assert out.stat().st_mode & 0o777 == 0o640
    assert [path.name for path in out.parent.iterdir()] == ["train.jsonl"]


def test_rows_may_come_from_standard_input(out: Path) -> None:
    command = command_line("-", out)
    subprocess.run(command, input=json.dumps(flat("a")).encode(), env=environment(), check=True)  # noqa: S603 - ours
    assert ids(out) == ["a"]


def test_an_output_that_is_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder.jsonl").mkdir()
    done = harborrl("--input", write(tmp_path / "in.jsonl", flat("a")), "--output", tmp_path / "folder.jsonl")
    assert (done.exit_code, "is no regular file" in done.stderr) == (1, True)


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(str(ROOT / part) for part in ("cli", "trainer"))}


def test_kill_9_leaves_the_old_file_and_the_next_run_clears_up(tmp_path: Path, out: Path) -> None:
    old = write_old(out)
    pipe = tmp_path / "in.jsonl"
    os.mkfifo(pipe)
    command = command_line(pipe, out)
    process = subprocess.Popen(command, env=environment())  # noqa: S603 - ours
    with pipe.open("w") as rows:
        # More than the writer's buffer and the pipe hold: part of it has reached the temporary file.
        for number in range(3000):
            rows.write(json.dumps(flat(f"i{number}", "x" * 1000)) + "\n")
        rows.flush()
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    left = [path for path in out.parent.iterdir() if path.name != "train.jsonl"]
    assert [path.stat().st_size > 0 for path in left] == [True]
    assert out.read_text() == old
    pipe.unlink()
    assert harborrl("--input", write(tmp_path / "in.jsonl", flat("a")), "--output", out).exit_code == 0
    assert [path.name for path in out.parent.iterdir()] == ["train.jsonl"]


def test_a_volume_that_takes_no_more_leaves_the_old_file(tmp_path: Path, out: Path) -> None:
    old = write_old(out)
    rows = write(tmp_path / "in.jsonl", *(flat(f"i{number}", "x" * 1000) for number in range(100)))
    command = command_line(rows, out)
    done = subprocess.run(  # noqa: S603 - ours
        command,
        env=environment(),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "cannot be written (File too large); nothing was changed" in done.stderr
    assert out.read_text() == old
    assert [path.name for path in out.parent.iterdir()] == ["train.jsonl"]


@pytest.mark.parametrize(("row", "written"), [(flat("a"), True), ("nope", False)])
@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_report_that_finds_no_room_is_no_verdict(
    tmp_path: Path, out: Path, row: Any, written: bool, more: tuple[str, ...]
) -> None:
    rows = write(tmp_path / "in.jsonl", row)
    command = command_line(rows, out, *more)
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(  # noqa: S603 - ours
            command, env=environment(), stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 74
    assert done.stderr.startswith("standard output: cannot be written (No space left on device)")
    assert done.stderr.count("\n") == 1
    assert out.exists() is written


def test_two_writers_of_a_folder_exclude_each_other(tmp_path: Path, out: Path) -> None:
    with output.replacing(out) as file:
        file.write(b"first\n")
        done = harborrl("--input", write(tmp_path / "in.jsonl", flat("a")), "--output", out)
        assert (done.exit_code, "another `harborrl data prepare` writes in this folder" in done.stderr) == (1, True)
    assert out.read_bytes() == b"first\n"


def test_an_input_that_breaks_off_leaves_the_old_file(out: Path) -> None:
    def rows() -> Iterator[tuple[int, Any]]:
        yield 1, flat("a")
        raise ConfigurationError("in.json: row 2 is not JSON")

    old = write_old(out)
    with pytest.raises(ConfigurationError):
        prepare(Input([Part("in.json", rows)], "in.json"), out, Converter(), Order())
    assert out.read_text() == old


def test_what_json_has_no_form_for_becomes_text_or_is_counted(out: Path) -> None:
    import datetime as dt  # noqa: PLC0415 - values as Parquet gives them
    import decimal  # noqa: PLC0415 - values as Parquet gives them

    good = flat("a", at=dt.datetime(2026, 1, 2, tzinfo=dt.UTC), cost=decimal.Decimal("1.10"), raw=b"text")
    rows = [(1, good), (2, flat("b", raw=[b"\xff"])), (3, flat("c", nan=float("nan")))]
    found = prepare(Input([Part("in", lambda: iter(rows))], "in"), out, Converter(), Order())
    first, last = (json.loads(line)["metadata"] for line in out.read_text().splitlines())
    assert (first["at"], first["cost"], first["raw"]) == ("2026-01-02T00:00:00+00:00", "1.10", "text")
    assert last["nan"] is None
    assert found.where == {"value without a JSON form": ["in:2"]}


def test_a_column_of_bytes_is_left_out_and_counted(tmp_path: Path, out: Path) -> None:
    """As the published Terminal-Bench set has it: a gzipped archive of each task."""
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is an optional dependency")
    from pyarrow import parquet  # noqa: PLC0415 - optional

    row = {"task_id": "hello-world", "archive": b"\x1f\x8b\xff", "base_description": "go", "max_agent_timeout_sec": 360}
    parquet.write_table(arrow.Table.from_pylist([row]), tmp_path / "test-00000-of-00001.parquet")
    found = report("--input", tmp_path, "--split", "test", "--output", out)
    assert (found["written"], found["binary"], found["shapes"]) == (1, {"archive": 1}, {"terminal-bench": 1})
    assert json.loads(out.read_text())["metadata"] == {
        "task_id": "hello-world",
        "base_description": "go",
        "max_agent_timeout_sec": 360,
        "instance_id": "hello-world",
        "split": "test",
    }


MIXED = (
    flat("astropy__astropy-1", "fix\u2028 it", repo="a/b", base_commit="c", reward=1),
    {"task_id": "hello-world", "base_description": "make\r\n a file"},
    {"prompt": [{"role": "user", "content": "go"}], "metadata": {"instance_id": "chat", "note": "\x00"}},
)


def test_the_native_trainer_reads_every_row_that_was_written(tmp_path: Path, out: Path) -> None:
    assert harborrl("--input", write(tmp_path / "in.jsonl", *MIXED), "--output", out).exit_code == 0
    found = read_jsonl(out)
    assert found.bad_rows == ()
    assert found.stripped == {}
    assert [(one.instance_id, one.text) for one in found.prompts] == [
        ("astropy__astropy-1", "fix\u2028 it"),
        ("hello-world", "make\r\n a file"),
        ("chat", "go"),
    ]


def miles_reader() -> Callable[[str], Iterator[dict[str, Any]]]:
    """Miles' own `read_file`, without the module's imports of Ray and SGLang, which it does not use."""
    tree = ast.parse(miles_file("miles/utils/data.py"))
    wanted: list[ast.stmt] = [
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name in ("read_file", "_parse_generalized_path")
    ]
    names: dict[str, Any] = {
        "os": os, "re": re, "json": json, "itertools": itertools, "pq": None, "logger": logging.getLogger("miles"),
    }  # fmt: skip
    exec(compile(ast.Module(wanted, []), "miles", "exec"), names)  # noqa: S102 - the source that the test is about
    reader: Callable[[str], Iterator[dict[str, Any]]] = names["read_file"]
    return reader


def test_miles_own_loader_reads_every_row_that_was_written(
    tmp_path: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    read = miles_reader()
    assert harborrl("--input", write(tmp_path / "in.jsonl", *MIXED), "--output", out).exit_code == 0
    rows = list(read(str(out)))
    assert capsys.readouterr().out == ""
    assert [row["metadata"]["instance_id"] for row in rows] == ["astropy__astropy-1", "hello-world", "chat"]
    assert all(isinstance(row["prompt"], str | list) for row in rows)
    assert [row["metadata"]["instance_id"] for row in read(f"{out}@[1:2]")] == ["hello-world"]
