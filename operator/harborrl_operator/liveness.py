"""Is the operator still told what happens? Measured end to end: what we write must come back through the watch.

Every BEAT_SECONDS the operator applies a heartbeat ConfigMap; the watch on ConfigMaps must deliver it. A watcher task
that died ends kopf and with it the process; one that is missing all the same is found by its absence.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from harborrl_operator.constants import LABEL_JOB, LABEL_MANAGED_BY, MANAGED_BY

BEAT_SECONDS = 20.0
LONGEST_AGE_SECONDS = 100.0
"""Five beats: kopf itself replaces a silent stream after 70 s."""
LONGEST_SILENCE_SECONDS = 600.0
"""An API server that is away is no fault of ours, and a restart brings it no nearer; a client that is broken is one."""

HEARTBEAT = "harborrl-operator-heartbeat"
WATCHED = ("harborrljobs", "deployments", "pods", "rayclusters", "configmaps", "services")
OPTIONAL = {"rayclusters": "RayCluster"}
"""Not served before KubeRay is installed: its watcher is missed only after it was there. Jobs say so."""


class OutdatedWatchError(Exception):
    """There is something to watch that was not there when the watchers were started: start again."""


class Liveness:
    """Ages by a monotonic clock that is an argument."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._sent = self._seen = clock()
        self._awaited: float | None = None
        """When the oldest beat that has not come back was sent."""
        self._watched: set[str] = set()

    def sent(self) -> None:
        """A beat was written."""
        self._sent = self._clock()
        self._awaited = self._sent if self._awaited is None else self._awaited

    def seen(self) -> None:
        self._seen, self._awaited = self._clock(), None

    def age(self) -> float:
        return self._clock() - self._seen

    def fault(self, watchers: set[str], ended: Iterable[str] = ()) -> str | None:
        """What is wrong, None when all is well.

        `watchers` are the resources that have a live watcher task, `ended` our own tasks that should never end.
        """
        gone = sorted(ended)
        if gone:
            return f"ended: {', '.join(gone)}"
        now = self._clock()
        if self._awaited is not None and now - self._awaited > LONGEST_AGE_SECONDS:
            return f"the heartbeat of {now - self._awaited:.0f} s ago has not come back"
        if now - self._sent > LONGEST_SILENCE_SECONDS:
            return f"no heartbeat could be written for {now - self._sent:.0f} s"
        self._watched |= watchers
        missing = sorted((set(WATCHED) - OPTIONAL.keys() | self._watched) - watchers)
        if missing:
            return f"no watcher for {', '.join(missing)}"
        return None


def live_watchers(namespaces: int = 1) -> set[str]:
    """Resources that kopf watches in each of so many namespaces.

    By the names of its tasks: `watcher for <plural>.<version>.<group>@<namespace>`.
    """
    names = (task.get_name() for task in asyncio.all_tasks() if not task.done())
    prefix = "watcher for "
    counts = Counter(name.removeprefix(prefix).split(".")[0] for name in names if name.startswith(prefix))
    return {plural for plural, count in counts.items() if count >= namespaces}


def unwatched(watchers: set[str]) -> list[str]:
    """Kinds that were not served when the watchers began; empty while they still begin."""
    begun = set(WATCHED) - OPTIONAL.keys() <= watchers
    return [kind for plural, kind in OPTIONAL.items() if plural not in watchers] if begun else []


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
