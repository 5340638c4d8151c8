"""Removes what owner references do not reach: sandbox anchors that nobody stands behind any more, hung agent servers.

The garbage collector takes the sandboxes of an anchor that is gone.

Of a job's own anchor that is the job, of an agent server's the pod. Neither can be the anchor's owner: owner references
do not cross namespaces. A server that is told to stop removes its anchor itself; one that is killed cannot, and its
successor is another pod and may not judge it.
"""

import logging
from datetime import datetime

from harborrl_operator.clock import seconds_since
from harborrl_operator.cluster import Cluster
from harborrl_operator.constants import KIND, LABEL_JOB, LABEL_JOB_NAMESPACE, LABEL_JOB_UID, LABEL_ROLE, Role
from harborrl_operator.observed import Object, labels, name_of, pod_phase

logger = logging.getLogger(__name__)

SWEEP_SECONDS = 60.0

HUNG_SECONDS = 45
"""Longer than an agent server whose job is gone takes to leave on a busy node."""


async def sweep(cluster: Cluster) -> int:
    """Number of anchors removed. Raises ClusterError when the API server does not answer."""
    removed = 0
    for anchor in await cluster.find("ConfigMap", None, f"{LABEL_ROLE}={Role.ANCHOR}"):
        loss = await _loss(cluster, anchor)
        if loss:
            meta = anchor["metadata"]
            await cluster.delete("ConfigMap", meta["namespace"], name_of(anchor), meta["uid"])
            logger.info("removed anchor %s/%s: %s", meta["namespace"], name_of(anchor), loss)
            removed += 1
    return removed


async def end_hung_servers(cluster: Cluster, now: datetime) -> int:
    """Number of pods. An agent server has as much time to end as its longest trial; without its job it needs none.

    One that is well leaves by itself within 30 s, so these hang.
    """
    ended = 0
    for pod in await cluster.find("Pod", None, f"{LABEL_ROLE}={Role.AGENT_SERVER}"):
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


async def _job_is_gone(cluster: Cluster, thing: Object) -> bool:
    """Read live, never from a cache: a wrong answer would cost the trials of a running job. Unlabelled: not gone."""
    owner = labels(thing)
    namespace, name, uid = owner.get(LABEL_JOB_NAMESPACE), owner.get(LABEL_JOB), owner.get(LABEL_JOB_UID)
    if not (namespace and name and uid):
        logger.debug("%s names no job; left alone", name_of(thing))
        return False
    job = await cluster.get(KIND, namespace, name)
    return job is None or job["metadata"]["uid"] != uid


async def _loss(cluster: Cluster, anchor: Object) -> str:
    """What the anchor has lost; empty while all is there."""
    if await _job_is_gone(cluster, anchor):
        return "its job is gone"
    namespace = labels(anchor).get(LABEL_JOB_NAMESPACE)
    server = (anchor.get("data") or {}).get("server")
    if not (server and namespace) or not anchor["metadata"].get("ownerReferences"):
        return ""  # the job's own anchor, which the servers of the job share
    pod = await cluster.get("Pod", namespace, server)
    return "its agent server is gone" if pod is None or pod_phase(pod) in ("Failed", "Succeeded") else ""
