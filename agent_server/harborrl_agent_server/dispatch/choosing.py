"""Which worker has a session: the same for every request of it, by rendezvous hashing. Pure."""

import hashlib
import random

from pydantic import ValidationError

from harborrl_agent_server.contract import RunRequest
from harborrl_agent_server.sessions import run_id


def worker_of(session: str, workers: int) -> int:
    return max(range(workers), key=lambda worker: hashlib.sha256(f"{worker} {session}".encode()).digest())


def worker_for(body: bytes, workers: int) -> int:
    """Of a `/run`. What names no session belongs to nobody, and what is malformed any worker can refuse."""
    try:
        session = run_id(RunRequest.model_validate_json(body))
    except ValidationError:
        return random.randrange(workers)  # noqa: S311 - it spreads load
    return worker_of(session, workers)
