"""What a process still says when its event loop is gone: the trials to cancel, and why the run ended."""

import json
import logging
import os
from collections.abc import Sequence
from pathlib import Path

import httpx

from harborrl_trainer.miles.settings import Settings

logger = logging.getLogger(__name__)

LAST_WORD_S = 5.0
"""The pod is leaving: the supervisor and the closed connections do the same again."""


def flush_now(settings: Settings, session_servers: Sequence[str]) -> None:
    """Asks the agent server once to cancel what is still in flight."""
    if not session_servers:
        return
    headers = {"Authorization": f"Bearer {settings.admin_secret}"} if settings.admin_secret else {}
    body = {"session_server_instance_ids": list(session_servers)}
    try:
        with httpx.Client(timeout=LAST_WORD_S, trust_env=False) as http:
            http.post(f"{settings.agent_server_url}/flush", json=body, headers=headers).raise_for_status()
    except httpx.HTTPError as error:
        logger.warning("flush on leaving failed: %s", error)


def write_verdict(path: "Path | None", exit_code: int, message: str) -> None:
    """Whole or absent: written beside and renamed. A full disk must not hide the verdict itself, which is raised."""
    if path is None:
        return
    beside = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(json.dumps({"schemaVersion": 1, "exitCode": exit_code, "message": message}))
        beside.replace(path)
    except OSError as error:
        logger.warning("no verdict file %s: %s", path, error)
