"""The phase of every job as last seen, for the count of jobs by phase. Pure."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from harborrl_operator.constants import Phase

Key = tuple[str, str]
"""Namespace and name."""


class JobBook:
    """Kept by the events of jobs: costs no request."""

    def __init__(self) -> None:
        self._phases: dict[Key, str] = {}

    def note(self, key: Key, status: Mapping[str, Any] | None) -> None:
        self._phases[key] = str((status or {}).get("phase") or Phase.PENDING)

    def forget(self, key: Key) -> None:
        self._phases.pop(key, None)

    def phases(self) -> Counter[str]:
        return Counter(self._phases.values())
