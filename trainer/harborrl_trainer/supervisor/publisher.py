"""Writes progress when it is worth it, and never gives up on the API server."""

from collections.abc import Mapping
from typing import Any

from harborrl_trainer.layout import IncarnationId
from harborrl_trainer.supervisor import progress
from harborrl_trainer.supervisor.cluster import Cluster, ClusterUnavailableError, ConflictError, Stored

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0
_LONGEST_FINAL_PAUSE = 4.0
"""A verdict is waited for, and there is one a job: it may knock more often."""


class Publisher:
    """The one writer of an incarnation's progress.

    Each write is against the version last seen, so that two heads whose lives overlap cannot undo each other: the older
    one meets a conflict, reads, finds a later incarnation and keeps silent. `sequence` goes on from what is stored.
    """

    def __init__(self, cluster: Cluster, mine: IncarnationId) -> None:
        self._cluster = cluster
        self._mine = mine
        self._stored: Stored | None = None
        self._written_at = float("-inf")
        self._not_before = float("-inf")
        self._pause = _FIRST_PAUSE
        self.trouble = ""
        """Why the last write failed; empty after one that did not."""

    async def offer(self, document: Mapping[str, Any], now: float, *, final: bool) -> None:
        """Write `document` if it is worth it and the back-off allows. Never raises for the API server's troubles."""
        if now < self._not_before:
            return
        try:
            await self._offer(document, now, final=final)
        except ClusterUnavailableError as error:
            self.trouble = str(error)
            self._not_before = now + self._pause
            self._pause = min(2 * self._pause, _LONGEST_FINAL_PAUSE if final else _LONGEST_PAUSE)
        else:
            self.trouble = ""
            self._pause = _FIRST_PAUSE

    async def _offer(self, document: Mapping[str, Any], now: float, *, final: bool) -> None:
        stored = self._stored or await self._cluster.read_progress()
        self._stored = stored
        if _author(stored.document) > self._mine:
            return
        if not progress.worth_writing(stored.document, document, now - self._written_at, final=final):
            return
        stamped = progress.stamp(document, _sequence(stored.document) + 1, now)
        try:
            version = await self._cluster.write_progress(stamped, stored.version)
        except ConflictError:
            self._stored = None
            raise
        self._stored, self._written_at = Stored(stamped, version), now


def _author(document: Mapping[str, Any] | None) -> IncarnationId:
    attempt, incarnation = (document or {}).get("attempt"), (document or {}).get("incarnation")
    if isinstance(attempt, int) and isinstance(incarnation, int):
        return IncarnationId(attempt, incarnation)
    return IncarnationId(0, 0)


def _sequence(document: Mapping[str, Any] | None) -> int:
    found = (document or {}).get("sequence")
    return found if isinstance(found, int) else 0
