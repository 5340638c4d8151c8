"""A conversation of chat messages as an ATIF trajectory, Harbor's format: pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from harbor.models.trajectories import Agent, Observation, ObservationResult, Step, ToolCall, Trajectory


def trajectory(messages: Sequence[Mapping[str, Any]], *, agent: str, version: str, session_id: str) -> Trajectory:
    """Messages in the order of the conversation; what a tool answered becomes the observation of the step before."""
    return Trajectory(session_id=session_id, agent=Agent(name=agent, version=version), steps=list(steps(messages)))


def steps(messages: Sequence[Mapping[str, Any]]) -> Iterator[Step]:
    number = 0
    step: Step | None = None
    for message in messages:
        role = message.get("role")
        if role == "tool" and step is not None and step.source == "agent":
            results = step.observation.results if step.observation else []
            known = {call.tool_call_id for call in step.tool_calls or ()}
            source = message.get("tool_call_id")
            result = ObservationResult(source_call_id=source if source in known else None, content=text_of(message))
            step.observation = Observation(results=[*results, result])
            continue
        if role not in SOURCES:
            continue
        if step is not None:
            yield step
        number += 1
        step = single(message, SOURCES[role], number)
    if step is not None:
        yield step


SOURCES = {"system": "system", "user": "user", "assistant": "agent"}


def single(message: Mapping[str, Any], source: Any, number: int) -> Step:
    calls = [tool_call(call, number, index) for index, call in enumerate(message.get("tool_calls") or ())]
    return Step(step_id=number, source=source, message=text_of(message), tool_calls=calls or None)


def tool_call(call: Mapping[str, Any], number: int, index: int) -> ToolCall:
    function = call.get("function") or {}
    return ToolCall(
        tool_call_id=str(call.get("id") or f"call_{number}_{index}"),
        function_name=str(function.get("name") or "unknown"),
        arguments={"arguments": function.get("arguments")},
    )


def text_of(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return str(content or "")
