"""A finished row is judged by the trainer as `data prepare` judges it, and its id as the agent server does."""

import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harborrl_agent_server import tasks
from harborrl_trainer import prompt_rows
from harborrl_trainer.data.json_input import read_lines
from harborrl_trainer.data.rows import Converter, Finished
from harborrl_trainer.errors import ConfigurationError
from harborrl_trainer.prompt_rows import BadRow, Prompt, parse_row


def line(prompt: str = '"do it"', **columns: str) -> bytes:
    """Values as they stand in the file."""
    metadata = {"instance_id": '"a"', **columns}
    inner = ", ".join(f'"{key}": {value}' for key, value in metadata.items())
    return f'{{"prompt": {prompt}, "metadata": {{{inner}}}}}'.encode()


def prepared(text: bytes) -> bool:
    try:
        rows = [value for _, value in read_lines(io.BytesIO(text))]
    except ConfigurationError:  # UTF-16, of which no line is looked at
        return False
    return bool(rows) and all(isinstance(Converter().convert(row), Finished) for row in rows)


def judged(text: bytes) -> Prompt | BadRow:
    return parse_row(text, "train.jsonl:1", index=0)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (line(r'"x\ud800"'), r"is not JSON ('\ud800' is half a character, which no tokenizer takes)"),
        (line(n=r'"\uDFFF"'), r"is not JSON ('\udfff' is half a character, which no tokenizer takes)"),
        (line(n="NaN"), "is not JSON (NaN is no number that a request can carry)"),
        (line(n="-Infinity"), "is not JSON (-Infinity is no number that a request can carry)"),
        (line(n="1e999"), "is not JSON (1e999 is no number that a request can carry)"),
        (line().decode().encode("utf-16"), "is not JSON ('utf-8' codec"),
        (line().decode().encode("utf-16-le"), "is not JSON ("),
        (line('"x\x01"'), "is not JSON (Invalid control character"),
        (b'{"prompt": "\xed\xa0\x80", "metadata": {"instance_id": "a"}}', "is not JSON ('utf-8' codec"),
        (line(instance_id='"../a"'), "has an id that no task directory may have ('../a'"),
        (line(instance_id=f'"{"a" * 129}"'), "has an id that no task directory may have"),
        (line('" "'), "has an empty prompt (instance a)"),
        (b'{"prompt": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "is nested too deeply"),
    ],
)
def test_a_row_that_data_prepare_drops_is_a_bad_row(text: bytes, problem: str) -> None:
    found = judged(text)
    assert isinstance(found, BadRow)
    assert found.problem.startswith(problem)
    assert not prepared(text)


@pytest.mark.parametrize(
    "text", [line(), line(r'"\ud83d\ude00"'), line(n="1.5e3"), line(n="-7"), line(instance_id=f'"{"a" * 128}"')]
)
def test_a_row_that_data_prepare_keeps_is_a_prompt(text: bytes) -> None:
    assert isinstance(judged(text), Prompt)
    assert prepared(text)


def test_a_byte_order_mark_is_refused_as_miles_would_leave_its_row_out() -> None:
    found = judged(b"\xef\xbb\xbf" + line())
    assert isinstance(found, BadRow)
    assert "BOM" in found.problem


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats()
    | st.text(st.characters(exclude_categories=[])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@given(prompt=JSON, value=JSON, plain=st.booleans())
def test_both_judge_every_value_alike(prompt: Any, value: Any, plain: bool) -> None:
    row = {"prompt": prompt, "metadata": {"instance_id": "a", "value": value}}
    text = json.dumps(row, ensure_ascii=plain).encode(errors="surrogatepass")
    assert isinstance(judged(text), Prompt) is prepared(text)


def test_an_id_is_what_the_agent_server_takes() -> None:
    assert prompt_rows.INSTANCE_ID.pattern == tasks.INSTANCE_ID.pattern
