"""Trial directories hold what a policy has left in its sandbox: links, pipes, floods, and letters that mislead."""

import json
import os
from pathlib import Path

import pytest

from harborrl_agent_server.dashboard.files import JSON_LIMIT, TEXT_LIMIT, TrialFiles, UnreadableError, visible


@pytest.fixture
def trial(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text("the server's own")
    (tmp_path / "harbor" / "t1" / "verifier").mkdir(parents=True)
    return tmp_path / "harbor" / "t1"


def opened(trial: Path) -> TrialFiles:
    return TrialFiles(trial.parent, trial.name)


@pytest.mark.parametrize("name", ["", ".", "..", "../harbor/t1", "t1/verifier", "t1\n", "t" * 200, "missing", "%2e%2e"])
def test_only_a_plain_name_is_a_trial(trial: Path, name: str) -> None:
    with pytest.raises(FileNotFoundError):
        TrialFiles(trial.parent, name)


def test_a_link_is_no_trial(trial: Path) -> None:
    (trial.parent / "t2").symlink_to("/etc")
    with pytest.raises(FileNotFoundError):
        TrialFiles(trial.parent, "t2")


def test_a_link_to_a_file_is_not_followed(trial: Path) -> None:
    (trial / "verifier" / "test-stdout.txt").symlink_to(trial.parent.parent / "secret")
    with pytest.raises(UnreadableError):
        opened(trial).text("verifier", "test-stdout.txt")


def test_a_link_in_place_of_a_folder_is_not_followed(trial: Path) -> None:
    (trial / "agent").symlink_to(trial.parent.parent)
    with pytest.raises(UnreadableError):
        opened(trial).text("agent", "secret")


def test_a_pipe_blocks_nobody(trial: Path) -> None:
    os.mkfifo(trial / "verifier" / "test-stdout.txt")
    with pytest.raises(UnreadableError, match="no regular file"):
        opened(trial).text("verifier", "test-stdout.txt")


def test_of_a_flood_the_beginning_and_the_end_are_shown(trial: Path) -> None:
    (trial / "verifier" / "test-stdout.txt").write_text("first\n" + "x" * 5_000_000 + "\nlast")
    found = opened(trial).text("verifier", "test-stdout.txt")
    assert found is not None
    assert found.text.startswith("first")
    assert found.text.endswith("last")
    assert len(found.text) < TEXT_LIMIT + 100
    assert found.omitted > 4_000_000


@pytest.mark.parametrize("content", ["[" * 100_000, "{", '{"a": ', "\xed\xa0\x80"])
def test_what_is_no_json_says_so(trial: Path, content: str) -> None:
    (trial / "run.json").write_text(content)
    with pytest.raises(UnreadableError, match="no JSON"):
        opened(trial).json("run.json")


def test_a_trajectory_that_is_too_large_is_not_parsed(trial: Path) -> None:
    with (trial / "run.json").open("wb") as file:
        file.truncate(JSON_LIMIT + 1)
    with pytest.raises(UnreadableError, match="larger than 8 MiB"):
        opened(trial).json("run.json")


def test_what_is_not_there_is_none(trial: Path) -> None:
    assert opened(trial).text("verifier", "test-stdout.txt") is None
    assert opened(trial).json("agent", "trajectory.json") is None


def test_a_document_is_read_as_it_is(trial: Path) -> None:
    (trial / "run.json").write_text(json.dumps({"a": [1, "ü"]}))
    assert opened(trial).json("run.json") == {"a": [1, "ü"]}


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("\x1b[31mred\x1b[0m\r\n", "red\n"),
        ("\x1b]0;title\x07text", "text"),
        ("a\x00b\x07", "a␀b␇"),
        ("safe\u202etxt.exe", "safe⟨U+202E⟩txt.exe"),
        ("zero\u200bwidth", "zero⟨U+200B⟩width"),
        ("tab\tund größe 日本\n", "tab\tund größe 日本\n"),
    ],
)
def test_nothing_invisible_stays_invisible(raw: str, shown: str) -> None:
    assert visible(raw) == shown
