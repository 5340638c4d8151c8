"""Ends agent servers that hang although their job is gone: owner references have told them long ago.

An agent server has as much time to end as its longest trial. One that is well and whose job is gone leaves by itself
within 30 s.
"""

import logging
from datetime import datetime

from harborrl_operator.clock import seconds_since
from harborrl_operator.cluster import Cluster
from harborrl_operator.constants import KIND, LABEL_JOB, LABEL_JOB_NAMESPACE, LABEL_JOB_UID, LABEL_ROLE, Role
from harborrl_operator.models import Settings
from harborrl_operator.observed import Object, labels, name_of

logger = logging.getLogger(__name__)

HUNG_SECONDS = 45
"""Longer than such a server takes to leave on a busy node."""


async def end_hung_servers(cluster: Cluster, settings: Settings, now: datetime) -> int:
    """Number of pods. Raises ClusterError when the API server does not answer."""
    ended = 0
    for namespace in settings.namespaces or (None,):
        for pod in await cluster.find("Pod", namespace, f"{LABEL_ROLE}={Role.AGENT_SERVER}"):
            if _going_for(pod, now) > HUNG_SECONDS and await _job_is_gone(cluster, pod):
                meta = pod["metadata"]
                await cluster.delete("Pod", meta["namespace"], name_of(pod), meta["uid"], grace=1)
                logger.info("ended agent server %s/%s: it hangs and its job is gone", meta["namespace"], name_of(pod))
                ended += 1
    return ended


def _going_for(pod: Object, now: datetime) -> float:
    """Seconds since its deletion; none when it is not being deleted, or was told its end before."""
    meta = pod["metadata"]
    grace = meta.get("deletionGracePeriodSeconds") or 0
    return seconds_since(meta["deletionTimestamp"], now) + grace if grace > HUNG_SECONDS else 0.0


async def _job_is_gone(cluster: Cluster, pod: Object) -> bool:
    """Read live, never from a cache: a wrong answer would cost the trials of a running job. Unlabelled: not gone."""
    owner = labels(pod)
    namespace, name, uid = owner.get(LABEL_JOB_NAMESPACE), owner.get(LABEL_JOB), owner.get(LABEL_JOB_UID)
    if not (namespace and name and uid):
        return False
    job = await cluster.get(KIND, namespace, name)
    return job is None or job["metadata"]["uid"] != uid
