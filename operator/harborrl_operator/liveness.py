"""Is the operator still told what happens? Measured end to end: what we write must come back through the watch.

Every BEAT_SECONDS the operator applies a heartbeat ConfigMap; the watch on ConfigMaps must deliver it. A watcher task
that died is found by its absence: kopf keeps one task a watched resource and does not replace one that ended.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from harborrl_operator.constants import LABEL_JOB, LABEL_MANAGED_BY, MANAGED_BY

BEAT_SECONDS = 20.0
LONGEST_AGE_SECONDS = 100.0
"""Five beats: kopf itself replaces a silent stream after 70 s."""

HEARTBEAT = "harborrl-operator-heartbeat"
WATCHED = ("harborrljobs", "deployments", "pods", "rayclusters", "configmaps")


class Liveness:
    """Ages by a monotonic clock that is an argument."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._seen = clock()

    def seen(self) -> None:
        self._seen = self._clock()

    def age(self) -> float:
        return self._clock() - self._seen

    def fault(self, watchers: set[str]) -> str | None:
        """What is wrong, None when all is well; `watchers` are the resources that have a live watcher task."""
        if self.age() > LONGEST_AGE_SECONDS:
            return f"the heartbeat was last seen {self.age():.0f} s ago"
        missing = sorted(set(WATCHED) - watchers)
        if missing:
            return f"no watcher for {', '.join(missing)}"
        return None


def live_watchers() -> set[str]:
    """Resources whose kopf watcher task runs, by its name `watcher for <plural>.<version>.<group>@<namespace>`."""
    names = (task.get_name() for task in asyncio.all_tasks() if not task.done())
    prefix = "watcher for "
    return {name.removeprefix(prefix).split(".")[0] for name in names if name.startswith(prefix)}


def heartbeat(namespace: str, beat: int) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": HEARTBEAT,
            "namespace": namespace,
            # The watch selects by the job label; no job can have this name's namespace and an empty uid.
            "labels": {LABEL_MANAGED_BY: MANAGED_BY, LABEL_JOB: ""},
        },
        "data": {"beat": str(beat)},
    }
