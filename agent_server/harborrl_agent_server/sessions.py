"""One session, one trial: what a repeated `/run` is recognised by, and where the first one's answer is kept."""

import hashlib
import json
import re
from pathlib import Path
from uuid import uuid4

from pydantic import ValidationError

from harborrl_agent_server.contract import RunRequest, RunResponse

SESSION_URL = re.compile(r"(?P<server>https?://(?P<host>[^/]+))/sessions/(?P<session>[^/]+)/v1/?", re.IGNORECASE)

RECORD = "run.json"
"""In a trial's directory: the request without the data set's row, and our answer. Written when the trial is over."""


class SessionTakenError(Exception):
    """The session of a request belongs to a live trial of another task."""


def run_id(request: RunRequest) -> str:
    """12 hexadecimal digits: the same for every request of one session, or random where the URL names none.

    The trial's directory ends in it, so a restarted server, or another version beside it, knows the session too.
    """
    found = SESSION_URL.fullmatch(request.base_url or "")
    if found is None:
        return uuid4().hex[:12]
    # The host of one session server may be written differently; its instance is the same.
    server = request.session_server_instance_id or found["host"]
    return hashlib.sha256(f"{server} {found['session']}".encode()).hexdigest()[:12]


def server_of(request: RunRequest) -> str | None:
    """The session server's own address; None where the URL names no session, or carries what is nobody's address."""
    found = SESSION_URL.fullmatch(request.base_url or "")
    return None if found is None or set("@?#") & set(found["host"]) else found["server"]


def trial_name(instance_id: str, run: str) -> str:
    """Safe as a directory, a logger and a pod name: no dots. Unique as `run` is."""
    slug = re.sub(r"[^a-z0-9]+", "-", instance_id.lower()).strip("-")[:40] or "task"
    return f"{slug}-{run}"


def recorded_answer(trial_dir: Path) -> RunResponse | None:
    """The answer of a trial that is over; None while it runs, and when it never ended."""
    try:
        return RunResponse.model_validate(json.loads((trial_dir / RECORD).read_text())["answer"])
    except (OSError, ValueError, KeyError, TypeError, ValidationError):
        return None
