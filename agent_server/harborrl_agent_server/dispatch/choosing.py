"""Which worker has a session: the same for every request of it, by rendezvous hashing. Pure."""

import hashlib
import random

from pydantic import ValidationError

from harborrl_agent_server.contract import RunRequest
from harborrl_agent_server.sessions import run_id


def worker_of(session: str, workers: int) -> int:
    return max(range(workers), key=lambda worker: hashlib.sha256(f"{worker} {session}".encode()).digest())


def worker_for(request: RunRequest | None, workers: int) -> int:
    """What names no session belongs to nobody, and what is malformed (None) any worker can refuse."""
    if request is None:
        return random.randrange(workers)  # noqa: S311 - it spreads load
    return worker_of(run_id(request), workers)


def request_of(body: bytes) -> RunRequest | None:
    try:
        return RunRequest.model_validate_json(body)
    except ValidationError:
        return None
