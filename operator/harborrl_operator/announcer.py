"""Events of a job: explicit ones only, each said once, and never more than a person would read.

An event's name is made from what it says and the hour: saying it again meets the one that is there, also after a
restart or a change of leader. Beyond that a job has a budget, for troubles whose text changes each time.
"""

import hashlib
import logging
from collections.abc import Callable
from datetime import datetime
from typing import Any

from harborrl_operator import metrics
from harborrl_operator.clock import to_text
from harborrl_operator.cluster import Cluster
from harborrl_operator.constants import API_VERSION, KIND
from harborrl_operator.errors import ClusterError
from harborrl_operator.models import HarborRLJob
from harborrl_operator.transitions import Transition

logger = logging.getLogger(__name__)

REPEAT_SECONDS = 3600
"""The same words may be said again after this long: events themselves live an hour."""

BURST, REFILL_SECONDS = 25, 300.0
"""Events that one job may have at once, and after how long it gains another: what Kubernetes' own recorder allows."""

MOST_BUDGETS = 4096
"""Jobs whose budget is remembered; a forgotten one is full again."""


class Announcer:
    """Writes events; `now` is an argument, so that tests own it."""

    def __init__(self, cluster: Cluster, now: Callable[[], datetime]) -> None:
        self._cluster, self._now = cluster, now
        self._budgets: dict[str, tuple[float, datetime]] = {}

    async def say(self, job: HarborRLJob, transition: Transition) -> None:
        """An event is a courtesy: what it tells is in the status, so a refused one is logged and not tried again."""
        now = self._now()
        if not self._has_budget(job.uid, now):
            metrics.EVENTS.labels("suppressed").inc()
            return
        try:
            await self._cluster.create(event(job, transition, now))
        except ClusterError as error:
            if not error.is_conflict:
                logger.warning("event for %s/%s was refused: %s", job.namespace, job.name, error)
            metrics.EVENTS.labels("repeated" if error.is_conflict else "refused").inc()
        else:
            metrics.EVENTS.labels("written").inc()

    def _has_budget(self, uid: str, now: datetime) -> bool:
        left, since = self._budgets.pop(uid, (float(BURST), now))
        left = min(left + (now - since).total_seconds() / REFILL_SECONDS, float(BURST))
        self._budgets[uid] = (left - 1 if left >= 1 else left, now)
        while len(self._budgets) > MOST_BUDGETS:
            del self._budgets[next(iter(self._budgets))]
        return left >= 1


def event(job: HarborRLJob, transition: Transition, now: datetime) -> dict[str, Any]:
    """A core/v1 Event, named after what it says."""
    hour = int(now.timestamp()) // REPEAT_SECONDS
    said = "\n".join((job.uid, transition.kind, transition.reason, transition.message, str(hour)))
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{job.name}.{hashlib.sha256(said.encode()).hexdigest()[:16]}",
            "namespace": job.namespace,
        },
        "involvedObject": {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "name": job.name,
            "namespace": job.namespace,
            "uid": job.uid,
        },
        "type": transition.kind,
        "reason": transition.reason,
        "message": transition.message,
        "source": {"component": "harborrl-operator"},
        "reportingComponent": "harborrl-operator",
        "firstTimestamp": to_text(now),
        "lastTimestamp": to_text(now),
        "count": 1,
    }
