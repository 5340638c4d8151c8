"""Miles' filter of aborted groups, by its name and meaning."""

from dataclasses import dataclass
from typing import Any

from miles.utils.types import Sample


@dataclass
class DynamicFilterOutput:
    keep: bool
    reason: str | None = None


def check_no_aborted(_args: Any, samples: list[Sample], **_: Any) -> DynamicFilterOutput:
    aborted = any(sample.status is Sample.Status.ABORTED for sample in samples)
    return DynamicFilterOutput(keep=not aborted, reason="group_has_aborted" if aborted else None)
