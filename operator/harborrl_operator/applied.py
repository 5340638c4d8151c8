"""What was applied and has not changed since: an idle job costs next to no write.

Forgotten when the watch shows another version than the one that our apply left, when the object or a job beside it is
deleted, and after a while: accounts, Roles and their bindings are not watched, and a watch may miss a deletion.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

WATCHED = ("ConfigMap", "Deployment", "Service")

RESYNC_SECONDS, RESYNC_WATCHED_SECONDS = 600.0, 1800.0
"""How long an account that somebody deleted stays away at most, and a child whose deletion the watch missed."""

Key = tuple[str, str, str]
"""Kind, namespace and name."""


@dataclass(frozen=True)
class _Entry:
    digest: str
    version: str
    at: datetime


class Applied:
    """A memory of this process alone: the next leader applies everything once."""

    def __init__(self) -> None:
        self._entries: dict[Key, _Entry] = {}

    def holds(self, thing: Mapping[str, Any], now: datetime) -> bool:
        """Whether the API server has this already, as far as we were told."""
        entry = self._entries.get(_key(thing))
        if entry is None or entry.digest != _digest(thing):
            return False
        longest = RESYNC_WATCHED_SECONDS if thing["kind"] in WATCHED else RESYNC_SECONDS
        return (now - entry.at).total_seconds() < longest

    def knows(self, thing: Mapping[str, Any]) -> bool:
        """Whether the object of this name was ours when last heard of."""
        return _key(thing) in self._entries

    def note(self, thing: Mapping[str, Any], stored: Mapping[str, Any], now: datetime) -> None:
        """`thing` was applied, `stored` is what the API server made of it."""
        self._entries[_key(thing)] = _Entry(_digest(thing), version_of(stored), now)

    def seen(self, kind: str, body: Mapping[str, Any], *, is_deleted: bool) -> None:
        """An event of the watch."""
        key = (kind, body["metadata"].get("namespace", ""), body["metadata"]["name"])
        entry = self._entries.get(key)
        if entry is not None and (is_deleted or entry.version != version_of(body)):
            del self._entries[key]

    def drop(self, kind: str, namespace: str, name: str) -> None:
        """It was seen to be absent, or we delete it."""
        self._entries.pop((kind, namespace, name), None)

    def forget_namespace(self, namespace: str) -> None:
        """A job there is deleted, and with it, maybe, everything else."""
        for key in [key for key in self._entries if key[1] == namespace]:
            del self._entries[key]


def version_of(thing: Mapping[str, Any]) -> str:
    """Of what we apply: the generation where status has a life of its own, else the resourceVersion."""
    meta = thing.get("metadata", {})
    return f"g{meta['generation']}" if "generation" in meta else str(meta.get("resourceVersion", ""))


def _key(thing: Mapping[str, Any]) -> Key:
    meta = thing["metadata"]
    return (thing["kind"], meta.get("namespace", ""), meta["name"])


def _digest(thing: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(thing, sort_keys=True).encode()).hexdigest()
