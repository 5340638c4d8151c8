"""Every kind of input yields the same rows, in bounded memory, or one line that says what to do."""

import gzip
import io
import json
from pathlib import Path
from typing import Any, override

import pytest

from harborrl_trainer.data import hub
from harborrl_trainer.data.causes import Cause
from harborrl_trainer.data.json_input import read_json, read_lines
from harborrl_trainer.data.sources import Input, Selection, open_input
from harborrl_trainer.data.splits import files_of
from harborrl_trainer.errors import ConfigurationError
from support.permissions import unprivileged_folder

ROWS = [{"instance_id": "a", "prompt": "ä\n"}, {"instance_id": "b", "prompt": "[}]"}]


def rows_of(found: Input) -> list[Any]:
    return [value for part in found.parts for _, value in part.rows()]


def read(text: str | Path, **selection: Any) -> list[Any]:
    return rows_of(open_input(str(text), Selection(**selection)))


def lines(*rows: Any) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


class Slow(io.BytesIO):
    """Gives one byte at a time, as a pipe may."""

    @override
    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(min(size or 0, 1) if size and size > 0 else size)

    @override
    def read1(self, size: int | None = -1, /) -> bytes:
        return self.read(size)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("rows.jsonl", lines(*ROWS)),
        ("rows.ndjson", lines(*ROWS)),
        ("rows.jsonl", b"\xef\xbb\xbf" + lines(*ROWS).replace(b"\n", b"\r\n") + b"\n \n"),
        ("rows.jsonl", lines(*ROWS).rstrip(b"\n")),
        ("rows.jsonl.gz", gzip.compress(lines(*ROWS))),
        ("rows.json", json.dumps(ROWS).encode()),
        ("rows.json", json.dumps(ROWS, indent=2).encode()),
        ("rows.json", lines(*ROWS)),
        ("rows.json.gz", gzip.compress(json.dumps(ROWS).encode())),
    ],
)
def test_a_file_is_read_by_its_suffix(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    assert read(tmp_path / name) == ROWS


def test_parquet_is_read_where_pyarrow_is_installed(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is an optional dependency")
    from pyarrow import parquet  # noqa: PLC0415 - optional

    parquet.write_table(arrow.Table.from_pylist(ROWS), tmp_path / "rows.parquet", row_group_size=1)
    assert read(tmp_path / "rows.parquet") == ROWS
    (tmp_path / "torn.parquet").write_bytes((tmp_path / "rows.parquet").read_bytes()[:-9])
    with pytest.raises(ConfigurationError, match=r"torn.parquet: row 1: not readable as Parquet"):
        read(tmp_path / "torn.parquet")


def test_the_elements_of_an_array_are_read_one_by_one_however_they_arrive() -> None:
    text = json.dumps([*ROWS, 12, "x", [1, [2]], {}, 34], indent=1).encode()
    assert list(read_json(Slow(text), "f")) == list(enumerate([*ROWS, 12, "x", [1, [2]], {}, 34], 1))


@pytest.mark.parametrize("text", ["[]", "", " \n"])
def test_an_empty_json_file_has_no_rows(text: str) -> None:
    assert list(read_json(io.BytesIO(text.encode()), "f")) == []


@pytest.mark.parametrize(
    "text", ['[{"a": 1}, {"b"', '[{"a": 1} {"b": 2}]', '[{"a": 1}, nope]', '[{"a": 1}], 2', '{"a": 1} }']
)
def test_json_that_breaks_off_is_an_error_that_names_the_row(text: str) -> None:
    with pytest.raises(ConfigurationError, match="f: row 2 is not JSON"):
        list(read_json(io.BytesIO(text.encode()), "f"))


def test_json_that_is_not_utf_8_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match="f: is not UTF-8"):
        list(read_json(io.BytesIO(b'["\xff"]'), "f"))


def test_an_element_beyond_the_bound_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match="row 1 is not JSON, or is larger"):
        list(read_json(io.BytesIO(b'["' + b"x" * 3_000_000 + b'"]'), "f", longest=1_000_000))


def test_lines_that_are_broken_are_rows_of_their_own_and_blank_ones_are_none() -> None:
    text = b'{"a": 1}\n\n  \nnope\n{"a": NaN}\n"\xff"\n{"a": 2}'
    assert list(read_lines(io.BytesIO(text))) == [
        (1, {"a": 1}),
        (4, Cause.NOT_JSON),
        (5, Cause.NOT_JSON),
        (6, Cause.NOT_JSON),
        (7, {"a": 2}),
    ]


def test_a_line_beyond_the_bound_is_passed_over_without_being_held() -> None:
    text = b'"' + b"x" * 1000 + b'"\n{"a": 1}\n"' + b"x" * 1000
    assert list(read_lines(io.BytesIO(text), longest=100)) == [(1, Cause.TOO_LONG), (2, {"a": 1}), (3, Cause.TOO_LONG)]


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.json"])
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (gzip.compress(lines(*ROWS)), "gzip: add .gz to its name"),
        (lines(*ROWS).decode().encode("utf-16"), "UTF-16: convert it to UTF-8"),
        (b"\x28\xb5\x2f\xfd\x04", "Zstandard: unpack it"),
    ],
)
def test_content_of_another_format_than_the_name_says_is_told_by_its_first_bytes(
    tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigurationError, match=rf"^{name}: is no JSON but {said}$"):
        read(tmp_path / name)


def test_parquet_that_is_named_jsonl_is_told_too(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_bytes(b"PAR1\x15")
    with pytest.raises(ConfigurationError, match=r"^rows\.jsonl: is no JSON but Parquet: name it \.parquet$"):
        read(tmp_path / "rows.jsonl")


def test_task_directories_become_rows_in_order(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "instruction.md").write_text(f"do {name}")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "task.toml").touch()
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "instruction.md").write_bytes(b"\xff")
    (tmp_path / "lost+found").mkdir()
    assert read(tmp_path) == [
        {"prompt": "do a", "metadata": {"instance_id": "a"}},
        {"prompt": "do b", "metadata": {"instance_id": "b"}},
        {"instance_id": "c"},
        Cause.UNREADABLE,
    ]
    assert [row["metadata"]["instance_id"] for row in read(tmp_path, glob="[ab]")] == ["a", "b"]


def test_a_task_directorys_row_is_placed_by_its_name_and_a_files_by_its_line(tmp_path: Path) -> None:
    for name in ("b", "two words"):
        (tmp_path / "tasks" / name).mkdir(parents=True)
        (tmp_path / "tasks" / name / "task.toml").touch()
    (tmp_path / "rows.jsonl").write_bytes(lines(*ROWS))
    (tasks,) = open_input(str(tmp_path / "tasks"), Selection()).parts
    (file,) = open_input(str(tmp_path / "rows.jsonl"), Selection()).parts
    assert (tasks.place(2), file.place(2)) == ("two words", "rows.jsonl:2")


def test_a_folder_of_data_files_is_read_by_split(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train-00000-of-00002.jsonl").write_bytes(lines(ROWS[0]))
    (tmp_path / "data" / "train-00001-of-00002.jsonl").write_bytes(lines(ROWS[1]))
    (tmp_path / "data" / "test-00000-of-00001.jsonl").write_bytes(lines({"instance_id": "t"}))
    assert read(tmp_path) == ROWS
    assert read(tmp_path, split="test") == [{"instance_id": "t"}]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rows.csv", r"cannot tell its format; name it \.jsonl, \.json \(both also with \.gz\) or \.parquet"),
        ("missing.jsonl", "no such file or folder"),
        ("missing", "a data set of the Hugging Face hub is named OWNER/NAME"),
        ("empty", "holds neither task directories"),
        ("torn.jsonl.gz", "the gzip stream is damaged"),
    ],
)
def test_what_is_no_input_says_what_would_be(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "rows.csv").touch()
    (tmp_path / "empty").mkdir()
    (tmp_path / "torn.jsonl.gz").write_bytes(gzip.compress(lines(*ROWS))[:-9])
    with pytest.raises(ConfigurationError, match=message):
        read(text if text == "missing" else tmp_path / text)


CARD = """---
configs:
- config_name: default
  data_files:
  - split: train
    path: part/a*.jsonl
  - split: test
    path: [b.jsonl]
- config_name: small
  data_files: c.jsonl
---
# Tasks
"""


@pytest.mark.parametrize(
    ("names", "card", "split", "config", "expected"),
    [
        (["tasks.parquet", "README.md"], "", "train", None, ["tasks.parquet"]),
        (["train.jsonl", "test.jsonl"], "", "test", None, ["test.jsonl"]),
        (
            ["train/0.parquet", "train/1.parquet", "test/0.parquet"],
            "",
            "train",
            None,
            ["train/0.parquet", "train/1.parquet"],
        ),
        (
            ["data/dev-00000-of-00001.parquet", "data/test-0.parquet"],
            "",
            "dev",
            None,
            ["data/dev-00000-of-00001.parquet"],
        ),
        (["data/train-lite.jsonl.gz", ".cache/train.jsonl"], "", "train", None, ["data/train-lite.jsonl.gz"]),
        (["big/train.jsonl", "small/train.jsonl"], "", "train", "small", ["small/train.jsonl"]),
        (["train.jsonl", "dataset_infos.json"], "", "train", None, ["train.jsonl"]),
        (["part/a1.jsonl", "part/b.jsonl", "b.jsonl", "c.jsonl"], CARD, "train", None, ["part/a1.jsonl"]),
        (["part/a1.jsonl", "b.jsonl", "c.jsonl"], CARD, "test", None, ["b.jsonl"]),
        (["part/a1.jsonl", "b.jsonl", "c.jsonl"], CARD, "train", "small", ["c.jsonl"]),
        (["train.jsonl"], "---\nconfigs: [\n---\n", "train", None, ["train.jsonl"]),
    ],
)
def test_a_splits_files_follow_the_hubs_rules(
    names: list[str], card: str, split: str, config: str | None, expected: list[str]
) -> None:
    assert files_of(names, card, split, config, "x") == expected


@pytest.mark.parametrize(
    ("names", "card", "split", "config", "message"),
    [
        (["train.jsonl"], "", "dev", None, "no data file of split 'dev' among train.jsonl; correct --split"),
        (["tasks.jsonl"], "", "test", None, "no data file of split 'test'"),
        (["big/train.jsonl", "small/train.jsonl"], "", "train", None, "several folders"),
        (["c.jsonl"], CARD, "dev", None, r"config 'default' has no files of split 'dev' \(it has test, train\)"),
        (["c.jsonl"], CARD, "train", "large", "choose one of its configs by --config: default, small"),
    ],
)
def test_a_split_that_is_not_there_is_an_error(
    names: list[str], card: str, split: str, config: str | None, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        files_of(names, card, split, config, "x")


@pytest.fixture
def cached_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The library's own cache with one data set in it, and the library told to stay offline; the commit."""
    constants = pytest.importorskip("huggingface_hub.constants", reason="huggingface_hub is an optional dependency")
    commit = "c0ffee" + "0" * 34
    data = tmp_path / "datasets--team--tasks" / "snapshots" / commit / "data"
    data.mkdir(parents=True)
    (data / "train.jsonl").write_bytes(lines(*ROWS))
    (data / "test.jsonl").write_bytes(lines(ROWS[0]))
    refs = tmp_path / "datasets--team--tasks" / "refs"
    refs.mkdir()
    (refs / "main").write_text(commit)
    # What HF_HUB_CACHE and HF_HUB_OFFLINE set when the library is imported first.
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return commit


def test_a_data_set_of_the_hub_is_read_from_the_librarys_cache(cached_hub: str) -> None:
    found = open_input("team/tasks", Selection())
    assert rows_of(found) == ROWS
    assert found.described == f"team/tasks at revision {cached_hub}"
    assert read("hf://datasets/team/tasks", split="test") == ROWS[:1]


def test_what_the_hub_does_not_give_is_one_line(cached_hub: str) -> None:
    assert cached_hub
    with pytest.raises(
        ConfigurationError, match=r"^team/other: no file or folder here, and the hub does not give it"
    ) as said:
        read("team/other")
    assert "\n" not in str(said.value)


def test_online_only_the_splits_files_are_fetched_and_all_of_one_commit(tmp_path: Path) -> None:
    class File:
        def __init__(self, name: str) -> None:
            self.rfilename = name

    class Info:
        sha = "c0ffee"
        siblings = [File("README.md"), File("part/a1.jsonl"), File("b.jsonl"), File("run.py")]  # noqa: RUF012 - a table

    class Library:
        """Stands for huggingface_hub as far as it is used online."""

        def __init__(self) -> None:
            self.fetched: list[tuple[str, str]] = []

        def is_offline_mode(self) -> bool:
            return False

        def HfApi(self) -> "Library":  # noqa: N802 - the library's name
            return self

        def dataset_info(self, name: str, *, revision: str | None) -> Info:
            assert (name, revision) == ("team/tasks", "v1")
            return Info()

        def hf_hub_download(self, *, filename: str, revision: str, **_: str) -> str:
            self.fetched.append((filename, revision))
            path = tmp_path / filename.replace("/", "-")
            path.write_text(CARD if filename == "README.md" else "")
            return str(path)

    library = Library()
    found = hub.fetch(library, "team/tasks", "train", None, "v1")
    assert [name for name, _ in found.files] == ["part/a1.jsonl"]
    assert library.fetched == [("README.md", "c0ffee"), ("part/a1.jsonl", "c0ffee")]


@pytest.mark.parametrize("mode", [0o000, 0o400], ids=["may not be listed", "may not be entered"])
def test_a_folder_that_is_closed_is_named(mode: int) -> None:
    with unprivileged_folder() as folder:
        closed = folder / "data"
        closed.mkdir()
        (closed / "train.jsonl").write_bytes(lines(*ROWS))
        (closed / "README.md").write_text("")
        closed.chmod(mode)
        try:
            with pytest.raises(ConfigurationError, match=rf"{closed}.*: cannot be read \(Permission denied\); make it"):
                read(closed)
        finally:
            closed.chmod(0o700)


def test_a_card_that_is_closed_is_named() -> None:
    with unprivileged_folder() as folder:
        (folder / "train.jsonl").write_bytes(lines(*ROWS))
        (folder / "README.md").write_text("")
        (folder / "README.md").chmod(0)
        with pytest.raises(ConfigurationError, match=r"README\.md: cannot be read \(Permission denied\)"):
            read(folder)
