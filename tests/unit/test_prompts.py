"""Prompts are read whole, bad rows are named, and the order they are drawn in never depends on the process."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harborrl_trainer.errors import ConfigurationError
from harborrl_trainer.job import Data, TaskSource
from harborrl_trainer.prompts import PromptOrder, read_jsonl, read_prompts, read_tasks
from support.permissions import unprivileged_folder


def jsonl(folder: Path, *rows: Any) -> Path:
    path = folder / "train.jsonl"
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
    return path


def row(instance: str, prompt: Any = "do it", **metadata: Any) -> dict[str, Any]:
    return {"prompt": prompt, "metadata": {"instance_id": instance, **metadata}}


def task(root: Path, name: str, instruction: str = "do it") -> None:
    (root / name).mkdir()
    (root / name / "instruction.md").write_text(instruction)
    (root / name / "task.toml").write_text("")


def test_rows_become_prompts_with_all_their_columns(tmp_path: Path) -> None:
    found = read_jsonl(jsonl(tmp_path, row("a", difficulty="easy"), "", row("b")))
    assert [(p.index, p.text, p.instance_id) for p in found.prompts] == [(0, "do it", "a"), (1, "do it", "b")]
    assert found.prompts[0].metadata == {"instance_id": "a", "difficulty": "easy"}
    assert found.prompts[1].where == "train.jsonl:3"


def test_reserved_keys_are_stripped_and_counted(tmp_path: Path) -> None:
    found = read_jsonl(jsonl(tmp_path, row("a", reward=1.0, base_url="http://x"), row("b", reward=0)))
    assert [dict(p.metadata) for p in found.prompts] == [{"instance_id": "a"}, {"instance_id": "b"}]
    assert found.stripped == {"reward": 2, "base_url": 1}


def test_a_message_list_is_a_prompt_too(tmp_path: Path) -> None:
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "do it"}]
    assert read_jsonl(jsonl(tmp_path, row("a", messages))).prompts[0].text == "be brief\n\ndo it"


@pytest.mark.parametrize(
    ("bad", "problem", "empty"),
    [
        ("{torn", "is not JSON", False),
        ([1], "is not a JSON object", False),
        ({"prompt": "x"}, "metadata object", False),
        ({"prompt": "x", "metadata": {}}, "no metadata.instance_id", False),
        (row("a", 7), "neither a string nor a list", False),
        (row("a", "  \n"), "empty prompt (instance a)", True),
        ({"metadata": {"instance_id": "a"}}, "empty prompt", True),
    ],
)
def test_a_bad_row_is_named_by_its_line_and_costs_no_other_row(
    tmp_path: Path, bad: Any, problem: str, empty: bool
) -> None:
    found = read_jsonl(jsonl(tmp_path, row("first"), bad, row("last")))
    assert [p.instance_id for p in found.prompts] == ["first", "last"]
    (reported,) = found.bad_rows
    assert reported.where == "train.jsonl:2"
    assert problem in reported.problem
    assert reported.empty_prompt is empty


def test_a_missing_data_set_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot read the data set"):
        read_prompts(Data(jsonl=tmp_path / "none.jsonl"))


@pytest.mark.parametrize("name", ["train.parquet", "train.jsonl.gz", "train.json"])
def test_a_data_set_in_another_format_is_no_row_of_garbage_but_has_to_be_converted(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"PAR1")
    with pytest.raises(ConfigurationError, match=rf"prepare --input {name} --output train\.jsonl` makes one"):
        read_prompts(Data(jsonl=tmp_path / name))


def test_task_directories_become_prompts_by_name(tmp_path: Path) -> None:
    task(tmp_path, "b-sort")
    task(tmp_path, "a-greet", "greet\n")
    (tmp_path / "lost+found").mkdir()
    (tmp_path / "README.md").write_text("not a task")
    found = read_prompts(Data(tasks=TaskSource(root=tmp_path)))
    assert [(p.index, p.instance_id, p.text) for p in found.prompts] == [
        (0, "a-greet", "greet\n"),
        (1, "b-sort", "do it"),
    ]
    assert found.bad_rows == ()


def test_the_glob_selects_tasks(tmp_path: Path) -> None:
    task(tmp_path, "train-1")
    task(tmp_path, "eval-1")
    assert [p.instance_id for p in read_tasks(TaskSource(root=tmp_path, glob="train-*")).prompts] == ["train-1"]


def test_a_task_with_an_empty_or_missing_instruction_is_reported(tmp_path: Path) -> None:
    task(tmp_path, "blank", " \n")
    task(tmp_path, "gone")
    (tmp_path / "gone" / "instruction.md").unlink()
    bad = {row.where: row for row in read_tasks(TaskSource(root=tmp_path)).bad_rows}
    assert bad["blank"].empty_prompt
    assert "cannot read instruction.md" in bad["gone"].problem


def test_a_task_whose_name_no_agent_server_takes_is_reported(tmp_path: Path) -> None:
    task(tmp_path, "two words")
    (bad,) = read_tasks(TaskSource(root=tmp_path)).bad_rows
    assert (bad.where, "has an id that no task directory may have ('two words'" in bad.problem) == ("two words", True)


@pytest.mark.parametrize("glob", ["/etc/*", "."])
def test_a_glob_that_selects_no_directories_of_the_root_is_a_configuration_error(tmp_path: Path, glob: str) -> None:
    with pytest.raises(ConfigurationError, match=r"correct data\.tasks\.glob"):
        read_tasks(TaskSource(root=tmp_path, glob=glob))


orders = st.builds(PromptOrder, count=st.integers(1, 20), seed=st.integers(0, 99), shuffle=st.booleans())


@given(order=orders, epoch=st.integers(0, 50))
def test_each_epoch_visits_each_prompt_once(order: PromptOrder, epoch: int) -> None:
    assert sorted(order.epoch(epoch)) == list(range(order.count))


@given(order=orders, position=st.integers(0, 200), first=st.integers(0, 40), second=st.integers(0, 40))
def test_drawing_in_two_parts_equals_drawing_at_once(
    order: PromptOrder, position: int, first: int, second: int
) -> None:
    whole = order.draw(position, first + second)
    assert order.draw(position, first) + order.draw(position + first, second) == whole


def test_epochs_and_seeds_differ() -> None:
    order = PromptOrder(count=50, seed=1)
    assert order.epoch(0) != order.epoch(1)
    assert order.epoch(0) != PromptOrder(count=50, seed=2).epoch(0)


def test_the_order_is_pinned_so_that_an_upgrade_cannot_reshuffle_a_resumed_run() -> None:
    assert PromptOrder(count=6, seed=1234).draw(0, 8) == PINNED


def test_nothing_can_be_drawn_from_no_prompts() -> None:
    with pytest.raises(ConfigurationError, match="no prompt"):
        PromptOrder(count=0, seed=1).draw(0, 1)


PINNED = [2, 3, 1, 5, 4, 0, 2, 1]


@pytest.fixture
def unprivileged() -> Iterator[Path]:
    with unprivileged_folder() as folder:
        yield folder


def test_a_task_that_may_not_be_entered_is_a_bad_row_and_lost_and_found_is_none(unprivileged: Path) -> None:
    for name in ("closed", "lost+found", "open"):
        task(unprivileged, name)
    closed = [unprivileged / name for name in ("closed", "lost+found")]
    for directory in closed:
        directory.chmod(0)
    try:
        found = read_tasks(TaskSource(root=unprivileged))
    finally:
        for directory in closed:
            directory.chmod(0o700)
    problems = [(bad.where, bad.problem) for bad in found.bad_rows]
    assert problems == [("closed", "cannot read instruction.md (Permission denied)")]
    assert [prompt.instance_id for prompt in found.prompts] == ["open"]
