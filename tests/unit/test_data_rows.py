"""A row of any known shape becomes one that both engines read, or a named cause why it cannot."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harborrl_trainer.data.causes import MEANING, Cause
from harborrl_trainer.data.rows import STRIPPED_KEYS, Converter, Finished

SWE_BENCH = {"instance_id": "astropy__astropy-1", "problem_statement": "it breaks", "repo": "a/b", "base_commit": "c0"}
TERMINAL_BENCH = {"task_id": "hello-world", "base_description": "make a file", "archive": "", "difficulty": "easy"}
FINISHED = {"prompt": "make a file", "metadata": {"instance_id": "hello-world", "difficulty": "easy"}}


def converted(row: Any, **options: Any) -> Finished:
    result = Converter(**options).convert(row)
    assert isinstance(result, Finished), result
    return result


@pytest.mark.parametrize(
    ("row", "instance_id", "prompt", "shape"),
    [
        (SWE_BENCH, "astropy__astropy-1", "it breaks", "swe-bench"),
        (TERMINAL_BENCH, "hello-world", "make a file", "terminal-bench"),
        (FINISHED, "hello-world", "make a file", "finished"),
        ({"instance_id": "x", "instruction": "go"}, "x", "go", "other"),
        ({"instance_id": "x", "problem_statement": "", "prompt": "go"}, "x", "go", "other"),
        ({"task_id": 17, "instruction": "go"}, "17", "go", "terminal-bench"),
        ({"instance_id": 0, "prompt": "go"}, "0", "go", "other"),
        ({"prompt": "go", "metadata": {"instance_id": "", "task_id": 0}}, "0", "go", "finished"),
    ],
)
def test_each_shape_is_told_by_its_columns(row: dict[str, Any], instance_id: str, prompt: str, shape: str) -> None:
    found = converted({**row})
    assert (found.instance_id, found.document["prompt"], found.shape) == (instance_id, prompt, shape)
    assert found.document["metadata"]["instance_id"] == instance_id


def test_every_column_of_a_flat_row_is_kept_as_metadata() -> None:
    assert converted({**SWE_BENCH}).document["metadata"] == {**SWE_BENCH, "split": "train"}


def test_a_finished_row_keeps_its_other_columns_where_they_are() -> None:
    found = converted({"prompt": "p", "label": "L", "metadata": {"instance_id": "x"}})
    assert found.document["label"] == "L"


def test_split_and_agent_name_replace_the_rows_own() -> None:
    row = {**SWE_BENCH, "split": "dev", "agent_name": "theirs"}
    assert converted({**row}, split="test", agent_name="bash").document["metadata"]["agent_name"] == "bash"
    assert converted({**row}, split="test").document["metadata"]["split"] == "test"
    assert converted({**row}).document["metadata"]["agent_name"] == "theirs"


def test_no_key_that_a_trial_sets_survives() -> None:
    converter = Converter()
    found = converter.convert({**SWE_BENCH, **dict.fromkeys(STRIPPED_KEYS, 1)})
    assert isinstance(found, Finished)
    assert STRIPPED_KEYS.isdisjoint(found.document["metadata"])
    assert converter.stripped == dict.fromkeys(STRIPPED_KEYS, 1)


@pytest.mark.parametrize("row", [None, [], "text", 7])
def test_what_is_no_object_is_named(row: Any) -> None:
    assert Converter().convert(row) is Cause.NOT_AN_OBJECT


@pytest.mark.parametrize(
    ("instance_id", "cause"),
    [
        (None, Cause.NO_ID),
        ("", Cause.NO_ID),
        ("../etc", Cause.INVALID_ID),
        ("a/b", Cause.INVALID_ID),
        (".hidden", Cause.INVALID_ID),
        ("a b", Cause.INVALID_ID),
        ("a\n", Cause.INVALID_ID),
        ("ä", Cause.INVALID_ID),
        ("a" * 129, Cause.INVALID_ID),
        (True, Cause.INVALID_ID),
        (1.5, Cause.INVALID_ID),
        (["a"], Cause.INVALID_ID),
    ],
)
def test_an_id_is_the_name_of_a_task_directory(instance_id: Any, cause: Cause) -> None:
    assert Converter().convert({"instance_id": instance_id, "prompt": "x"}) is cause
    assert Converter().convert({"prompt": "x", "metadata": {"instance_id": instance_id}}) is cause


@pytest.mark.parametrize(
    ("prompt", "cause"),
    [
        ("", Cause.EMPTY_PROMPT),
        (" \n", Cause.EMPTY_PROMPT),
        (None, Cause.EMPTY_PROMPT),
        ([], Cause.EMPTY_PROMPT),
        ([{"role": "user", "content": " "}], Cause.EMPTY_PROMPT),
        (7, Cause.PROMPT_NOT_TEXT),
        ({"text": "x"}, Cause.PROMPT_NOT_TEXT),
        (["x"], Cause.PROMPT_NOT_TEXT),
        ([{"role": "user", "content": [{"type": "image"}]}], Cause.PROMPT_NOT_TEXT),
    ],
)
def test_a_prompt_is_text_or_messages_and_says_something(prompt: Any, cause: Cause) -> None:
    assert Converter().convert({"instance_id": "x", "prompt": prompt}) is cause
    assert Converter().convert({"prompt": prompt, "metadata": {"instance_id": "x"}}) is cause


def test_messages_stay_messages() -> None:
    messages = [{"role": "user", "content": "go"}]
    assert converted({"instance_id": "x", "prompt": messages}).document["prompt"] == messages


def test_a_named_prompt_column_has_no_fallback() -> None:
    converter = Converter(prompt_key="text")
    assert converter.convert({**SWE_BENCH}) is Cause.NO_PROMPT
    assert converter.convert({**SWE_BENCH, "text": ""}) is Cause.EMPTY_PROMPT
    found = converter.convert({"prompt": "old", "metadata": {"instance_id": "x", "text": "new"}})
    assert isinstance(found, Finished)
    assert found.document["prompt"] == "new"


def test_a_named_id_column_has_no_fallback() -> None:
    assert Converter(id_key="name").convert({**SWE_BENCH}) is Cause.NO_ID
    found = Converter(id_key="name").convert({**SWE_BENCH, "name": "n"})
    assert isinstance(found, Finished)
    assert found.document["metadata"]["instance_id"] == "n"


def test_a_row_without_any_prompt_column_is_named() -> None:
    assert Converter().convert({"instance_id": "x", "question": "?"}) is Cause.NO_PROMPT


def test_each_cause_has_a_meaning() -> None:
    assert set(MEANING) == set(Cause)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["instance_id", "prompt", "metadata", "x"]), inner),
    max_leaves=12,
)


@given(row=JSON)
def test_no_row_breaks_the_converter(row: Any) -> None:
    result = Converter().convert(row)
    assert isinstance(result, Finished | Cause)
    if isinstance(result, Finished):
        assert result.document["metadata"]["instance_id"] == result.instance_id
