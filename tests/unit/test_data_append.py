"""`harborrl data prepare --append`: old rows stay as they are, new ids are added, and doing it again is harmless."""

import json
from pathlib import Path

import pytest

from support.data_command import flat, harborrl, ids, report, write


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out" / "train.jsonl"


def test_appending_keeps_what_is_there_byte_for_byte_and_skips_its_ids(tmp_path: Path, out: Path) -> None:
    out.parent.mkdir()
    old = '{"metadata": {"instance_id": "old", "n": 1.0}, "prompt": "é"}'
    out.write_text(old)
    found = report("--input", write(tmp_path / "in.jsonl", flat("old"), flat("new")), "--output", out, "--append")
    assert out.read_text().splitlines()[0] == old
    assert ids(out) == ["old", "new"]
    assert (found["kept"], found["written"]) == (1, 1)
    assert found["dropped"] == [{"cause": "already in the output", "rows": 1, "first": ["in.jsonl:1"]}]


def test_appending_twice_changes_nothing_and_is_no_failure(tmp_path: Path, out: Path) -> None:
    rows = write(tmp_path / "in.jsonl", flat("a"), flat("b"))
    assert harborrl("--input", rows, "--output", out, "--append").exit_code == 0
    once, inode = out.read_bytes(), out.stat().st_ino
    done = harborrl("--input", rows, "--output", out, "--append")
    assert (done.exit_code, done.stdout) == (
        0,
        f"{rows}: 2 rows read\n  2 already in the output\n{out}: is as it was, 2 kept\n",
    )
    assert (out.read_bytes(), out.stat().st_ino) == (once, inode)
    assert report("--input", rows, "--output", out, "--append")["changed"] is False
    assert [path.name for path in out.parent.iterdir()] == ["train.jsonl"]


def test_a_row_that_is_always_dropped_makes_no_failure_of_appending_again(tmp_path: Path, out: Path) -> None:
    rows = write(tmp_path / "in.jsonl", flat("a"), "nope")
    found = [report("--input", rows, "--output", out, "--append") for _ in range(2)]
    assert [one["exit"] for one in found] == [0, 0]
    assert [one["dropped"][-1] for one in found] == [{"cause": "not JSON", "rows": 1, "first": ["in.jsonl:2"]}] * 2


def test_what_the_output_has_already_is_no_loss_to_strict(tmp_path: Path, out: Path) -> None:
    rows = write(tmp_path / "in.jsonl", flat("a"))
    words = ("--input", rows, "--output", out, "--append", "--strict")
    assert [harborrl(*words).exit_code for _ in range(2)] == [0, 0]
    write(rows, flat("a"), "nope")
    assert "1 of 2 rows would be dropped" in harborrl(*words).stderr


def test_appending_to_a_file_that_no_engine_reads_whole_changes_nothing(tmp_path: Path, out: Path) -> None:
    out.parent.mkdir()
    write(out, flat("a"))
    done = harborrl("--input", write(tmp_path / "in.jsonl", flat("b")), "--output", out, "--append")
    assert done.exit_code == 1
    assert "train.jsonl:1: is not a row with metadata.instance_id, so --append changed nothing" in done.stderr
    assert out.read_text() == json.dumps(flat("a")) + "\n"
