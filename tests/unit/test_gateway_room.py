"""Refusals as engines and session servers word them: which mean that the sequence is full."""

import json
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import JSONResponse

from harborrl_agent_server.gateway_room import is_full
from support.agent_server import MARKS, stage

pytestmark = MARKS

RECORDED = json.loads((Path(__file__).parents[1] / "data" / "engine" / "refusals.json").read_text())["exchanges"]

FULL = "The input (6031 tokens) is longer than the model's context length (4096 tokens)."


def of_sglang(message: str) -> dict[str, Any]:
    return {"object": "error", "message": message, "type": "BadRequestError", "param": None, "code": 400}


@pytest.mark.parametrize("seen", RECORDED, ids=lambda seen: f"{seen['by']}: {seen['name']}")
def test_of_what_was_recorded_only_a_prompt_beyond_the_context_is_full(seen: dict[str, Any]) -> None:
    assert is_full(seen["status"], seen["body"].encode()) is (seen["name"] == "prompt longer than the context")


@pytest.mark.parametrize(
    "document",
    [
        of_sglang(
            "Requested token count exceeds the model's maximum context length of 4096 tokens. You requested 5000"
        ),
        of_sglang("Input length (5000 tokens) exceeds the maximum allowed length (4090 tokens). Use a shorter input"),
        of_sglang("This model's maximum context length is 4096 tokens. However, you requested 5000 tokens"),
        {"error": of_sglang("The decoder prompt (length 5000) is longer than the maximum model length of 4096.")},
        {"error": of_sglang(f"Value error, {FULL}")},
        {
            "error": of_sglang(
                "'max_tokens' or 'max_completion_tokens' is too large: 512. This model's maximum context length is "
                "4096 tokens and your request has 3900 input tokens (512 > 4096 - 3900)."
            )
        },
        {"error": {"message": "no", "code": "context_length_exceeded"}},
        {"error": {"message": "no", "type": "context_length_exceeded"}},
        {"code": "context_length_exceeded", "message": "no"},
        {"detail": FULL},
        {"error": FULL},
    ],
)
def test_each_engines_words_for_a_full_context_are_known(document: dict[str, Any]) -> None:
    assert is_full(400, json.dumps(document).encode())


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, json.dumps({"error": f"rollback failed: {FULL}"})),
        (400, json.dumps(of_sglang(f"messages must grow: {[{'role': 'user', 'content': FULL}]}"))),
        (400, json.dumps({"error": {"message": "context_length_exceeded", "code": 400}})),
        (500, json.dumps(of_sglang(FULL))),
        (400, FULL),
        (400, json.dumps([FULL])),
        (400, "{"),
    ],
)
def test_a_refusal_that_only_quotes_such_words_is_none(status: int, body: str) -> None:
    """The policy writes what is quoted, and must not choose how its trial counts."""
    assert not is_full(status, body.encode())


def one_turn_of_room(_messages: list[dict[str, Any]], number: int) -> Any:
    """A session of Miles whose SGLang has no room for a second turn."""
    return JSONResponse(of_sglang(FULL), status_code=400) if number else "```sh\necho hello >/app/greeting.txt\n```"


async def test_a_trial_whose_engine_has_no_room_for_another_turn_is_graded(tasks: Path) -> None:
    async with stage(tasks, one_turn_of_room) as server:
        answer = await server.run()
        assert len(server.session.requests) == 2
    assert (answer["exit_status"], answer["reward"], answer["infra_failure"]) == (
        "SequenceLengthLimitExceeded",
        1.0,
        False,
    )
