"""Session servers that refuse every turn, and what an agent's trial comes to then."""

import pytest
from starlette.responses import JSONResponse

from support.agent_http import Script


def failing(status: int, code: str) -> Script:
    return lambda _messages, _number: JSONResponse({"error": {"code": code, "message": "no"}}, status_code=status)


FAILING = [
    pytest.param(400, "context_length_exceeded", "SequenceLengthLimitExceeded", 1, id="a full context"),
    pytest.param(404, "unknown", "ModelEndpointFailed", 1, id="a session that is gone"),
    pytest.param(500, "boom", "ModelEndpointFailed", 3, id="a server that fails"),
]
"""HTTP status, the error's code, the trial's exit status, and the requests that it takes."""
