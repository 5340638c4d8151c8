"""Turns from what agents leave: our bash agent's conversation, ATIF, and whatever a policy may have put there."""

from typing import Any

import pytest
from harbor.models.trajectories import Agent, Step, ToolCall, Trajectory
from harbor.models.trajectories.observation import Observation
from harbor.models.trajectories.observation_result import ObservationResult
from hypothesis import given
from hypothesis import strategies as st

from harborrl_agent_server.dashboard.trajectory import TEXT_LIMIT, Output, trajectory
from support.dashboard import bash_trial

LOOK = "I look around.\n\n```sh\nls /app\n```"


def test_the_bash_agents_examples_are_no_turns() -> None:
    found = trajectory(bash_trial((LOOK, "exit code 0\nREADME"), ("TASK_DONE", ""), instruction="Do it."))
    assert found is not None
    assert [message.role for message in found.opening] == ["system", "user", "assistant", "user", "assistant"]
    assert found.instruction == "Do it."
    assert [(turn.said, turn.commands, turn.outputs) for turn in found.turns] == [
        ("I look around.", ("ls /app",), (Output("README", 0),)),
        ("TASK_DONE", (), ()),
    ]


def test_a_trial_without_a_single_reply_has_no_turns() -> None:
    found = trajectory(bash_trial(instruction="Do it."))
    assert found is not None
    assert (found.instruction, found.turns) == ("Do it.", ())


@pytest.mark.parametrize("code", [1, 124, -9])
def test_the_exit_code_is_read_from_the_observation(code: int) -> None:
    found = trajectory(bash_trial((LOOK, f"exit code {code}\nno such file")))
    assert found is not None
    assert found.turns[0].outputs == (Output("no such file", code),)


def test_what_harbors_own_agents_write_is_understood() -> None:
    """Built with Harbor's own model, so that a new version of the format shows here."""
    call = ToolCall(tool_call_id="1", function_name="bash_command", arguments={"keystrokes": "ls\n", "duration": 1})
    written = Trajectory(
        agent=Agent(name="terminus-2", version="2", model_name="openai/model"),
        steps=[
            Step(step_id=1, source="system", message="You are an agent."),
            Step(step_id=2, source="user", message="Do it."),
            Step(
                step_id=3,
                source="agent",
                message="Looking.",
                reasoning_content="hm",
                tool_calls=[call],
                observation=Observation(results=[ObservationResult(content="README")]),
            ),
            Step(step_id=4, source="user", message="Are you sure?"),
        ],
    )
    found = trajectory(written.to_json_dict())
    assert found is not None
    assert (found.model, found.instruction, found.opening[0].text) == ("openai/model", "Do it.", "You are an agent.")
    turn, told = found.turns
    assert (turn.said, turn.reasoning, turn.commands) == ("Looking.", "hm", ("ls\n",))
    assert turn.outputs == (Output("README"),)
    assert told.told == "Are you sure?"


def test_long_texts_are_cut_in_the_middle_and_say_so() -> None:
    found = trajectory(bash_trial((LOOK, "exit code 0\n" + "x" * 1_000_000)))
    assert found is not None
    text = found.turns[0].outputs[0].text
    assert len(text) < TEXT_LIMIT + 100
    assert "characters left out" in text


NAMES = """schema messages role content steps source progress turns tool_calls arguments observation results metrics
text type agent message command"""
KEYS = st.sampled_from(NAMES.split())
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=20,
)


@given(st.sampled_from(["harborrl-bash/1", "ATIF-v1.7"]), st.dictionaries(KEYS, JSON, max_size=6))
def test_no_document_is_too_strange(schema: str, document: dict[str, Any]) -> None:
    assert trajectory({**document, "schema": schema}) is not None


@pytest.mark.parametrize("document", [None, [], "text", 7, {}, {"schema": "other/1"}])
def test_another_format_is_told_from_an_empty_one(document: Any) -> None:
    assert trajectory(document) is None
