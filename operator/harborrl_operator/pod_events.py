"""Which events of trainer pods are worth a pass, and how soon: a gang of 512 that starts sends thousands of them.

Each pass lists all pods of its job, so a pass per event would be a list of 512 for each of them.
"""

import json
from collections.abc import Mapping
from typing import Any

from harborrl_operator.work_queue import SETTLE_SECONDS, Key

GANG_SETTLE_SECONDS = 2.0
"""Between two passes that pods of one gang ask for. The first event after as long a silence is heard at once: a head
that ends alone waits for nobody."""

_UNREAD = ("ContainersReady", "Initialized", "PodReadyToStartContainers")
"""Conditions of a pod that no decision looks at."""


class PodEvents:
    """What was last seen of each pod, and when pods of each job last asked for a pass."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}
        self._asked: dict[Key, float] = {}

    def delay(self, job: Key, pod: Mapping[str, Any], now: float, *, is_deleted: bool) -> float | None:
        """Seconds until the pass that this event asks for; None when it changes nothing that a decision looks at.

        `now` is of a monotonic clock. Also after a watch has begun anew, whose first events repeat what is known.
        """
        uid = str(pod["metadata"].get("uid", ""))
        before = self._seen.pop(uid, None)
        if not is_deleted:
            self._seen[uid] = digest = hash(json.dumps(_read(pod), sort_keys=True, default=str))
            if digest == before:
                return None
        is_first = now - self._asked.get(job, -GANG_SETTLE_SECONDS) >= GANG_SETTLE_SECONDS
        if is_first:
            self._asked[job] = now
        return SETTLE_SECONDS if is_first else GANG_SETTLE_SECONDS

    def forget(self, job: Key) -> None:
        """The job is deleted; its pods' own deletions are events."""
        self._asked.pop(job, None)


def _read(pod: Mapping[str, Any]) -> list[Any]:
    """All that a decision may look at: no address, no version, no field manager."""
    meta, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    conditions = [
        [condition.get(field) for field in ("type", "status", "reason", "message", "lastTransitionTime")]
        for condition in status.get("conditions") or []
        if condition.get("type") not in _UNREAD
    ]
    containers = [
        [container.get(field) for field in ("name", "state", "lastState", "ready", "restartCount")]
        for listed in ("initContainerStatuses", "containerStatuses")
        for container in status.get(listed) or []
    ]
    return [
        [meta.get(field) for field in ("labels", "annotations", "deletionTimestamp")],
        [spec.get(field) for field in ("nodeName", "schedulingGates")],
        [status.get(field) for field in ("phase", "reason", "message")],
        conditions,
        containers,
    ]
