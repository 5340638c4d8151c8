"""What the containers of a preflight pod found: the preflight's own result, and what Miles' parser said.

Either is tests/contract/preflight.json in a termination message.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from harborrl_operator.constants import PARSER, Reason
from harborrl_operator.models.status import StatusModel
from harborrl_operator.observed import Object, container_statuses, pod_phase
from harborrl_operator.problems import last_line

NOT_ASKED = "ParserNotAsked"
"""Reason of a remark, in the trainer's words."""
_NEVER_BEGAN = "ContainerStatusUnknown"
"""What the kubelet says of a container that it never started, when the pod's time is over."""
_NO_PYTHON = ("StartError", "ContainerCannotRun")
"""Of a container whose program is not in its image."""


class Finding(StatusModel):
    severity: str
    reason: str
    message: str


class Result(StatusModel):
    schema_version: int
    ok: bool
    findings: list[Finding]
    facts: Any = None


def parse(message: str) -> Result | None:
    """None for anything else, such as the log tail of a crash, which may be JSON of another kind."""
    try:
        return Result.model_validate_json(message)
    except ValidationError:
        return None


def terminated(pod: Object, container: str) -> Mapping[str, Any]:
    """How it ended; empty while it has not."""
    for status in container_statuses(pod):
        ended = (status.get("state") or {}).get("terminated")
        if ended and status["name"] == container:
            return dict(ended)
    return {}


def parser_findings(pod: Object) -> list[Finding] | None:
    """None while Miles' parser has not answered; none at all of a pod that does not ask it.

    A parser that cannot be asked holds no job up: its driver asks again, beside the GPUs. An image that cannot be had
    does, since the trainer waits for it too.
    """
    image = next((one["image"] for one in pod["spec"].get("containers") or () if one["name"] == PARSER), None)
    if image is None:
        return []
    ended = terminated(pod, PARSER)
    if not ended and pod_phase(pod) not in ("Succeeded", "Failed"):
        return None
    if ended.get("reason", _NEVER_BEGAN) == _NEVER_BEGAN and not ended.get("startedAt"):
        return [_not_asked(image, "its pod was lost meanwhile") if _had_its_image(pod) else _never_pulled(image, pod)]
    result = parse(str(ended.get("message", "")))
    if result is not None:
        return result.findings
    said = last_line(str(ended.get("message", ""))) or f"exit code {ended.get('exitCode')} ({ended.get('reason', '')})"
    if ended.get("reason") in _NO_PYTHON:
        message = f"trainer.image: {image} does not run python3 ({said}). Take an image of Miles."
        return [Finding(severity="refuse", reason=Reason.ENGINE_UNAVAILABLE, message=message)]
    return [_not_asked(image, said)]


def _never_pulled(image: str, pod: Object) -> Finding:
    said = str(pod["status"].get("message", "")) or "no message"
    message = (
        f"The preflight ended before trainer.image {image} was there ({said}): the registry is slow or away. It"
        " goes on pulling with the next try."
    )
    return Finding(severity="refuse", reason=Reason.IMAGE_PULL_FAILED, message=message)


def _had_its_image(pod: Object) -> bool:
    """A node that goes takes the last state of a container with it, and leaves what image it had."""
    mine = [status for status in container_statuses(pod) if status["name"] == PARSER]
    return any(status.get("imageID") or "running" in (status.get("state") or {}) for status in mine)


def _not_asked(image: str, said: str) -> Finding:
    message = f"Miles' own parser could not be asked in {image} ({said}): the driver asks it at its start."
    return Finding(severity="warn", reason=NOT_ASKED, message=message)
