"""What mini-swe-agent leaves in its sandbox, where the policy may have written it: bounded, and not trusted."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harborrl_agent_server.contract import ExitStatus

KEPT_BYTES = 8 * 1024 * 1024
"""Of its output, and of its trajectory. Both are the policy's to write, as large as a transfer may be."""


def tidied(path: Path, secret: str) -> bool:
    """Take the secret out of a file and cut it to `KEPT_BYTES`; whether it had no more."""
    with path.open("rb") as file:
        content = file.read(KEPT_BYTES + 1)
    is_whole = len(content) <= KEPT_BYTES
    content = content.replace(secret.encode(), b"[token]")
    path.write_bytes(content if is_whole else content[: -len(secret)])  # the cut may go through the secret
    return is_whole


def document_of(path: Path) -> dict[str, Any]:
    """Its trajectory; empty for a file that is none: the policy may have written it."""
    try:
        found = json.loads(path.read_text(errors="replace"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def info_of(document: Mapping[str, Any]) -> Mapping[str, Any]:
    info = document.get("info")
    return info if isinstance(info, dict) else {}


def end_as_it_says(document: Mapping[str, Any], progress: dict[str, Any]) -> None:
    """Its own limit of turns is no submission; everything else that it says about its end may be the policy's words."""
    if info_of(document).get("exit_status") == "LimitsExceeded":
        progress.setdefault("end", ExitStatus.TURN_LIMIT)
