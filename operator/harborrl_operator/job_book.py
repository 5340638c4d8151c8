"""Phase of every job as last seen, and whether it is stalled, for the counts of jobs. Pure."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from harborrl_operator.constants import ConditionType, Phase

Key = tuple[str, str]
"""Namespace and name."""


class JobBook:
    """Kept by the events of jobs: costs no request."""

    def __init__(self) -> None:
        self._phases: dict[Key, str] = {}
        self._stalled: set[Key] = set()

    def note(self, key: Key, status: Mapping[str, Any] | None) -> None:
        self._phases[key] = str((status or {}).get("phase") or Phase.PENDING)
        found = {one["type"]: one["status"] for one in (status or {}).get("conditions") or ()}
        (self._stalled.add if found.get(ConditionType.STALLED) == "True" else self._stalled.discard)(key)

    def forget(self, key: Key) -> None:
        self._phases.pop(key, None)
        self._stalled.discard(key)

    def phases(self) -> Counter[str]:
        return Counter(self._phases.values())

    def stalled(self) -> int:
        return len(self._stalled)
