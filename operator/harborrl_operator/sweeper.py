"""Removes sandbox anchors that nobody stands behind any more; the garbage collector then takes their sandboxes.

Of a job's own anchor that is the job, of an agent server's the pod. Neither can be the anchor's owner: owner references
do not cross namespaces. A server that is told to stop removes its anchor itself; one that is killed cannot, and its
successor is another pod and may not judge it.
"""

import logging

from harborrl_operator.cluster import Cluster
from harborrl_operator.constants import KIND, LABEL_JOB, LABEL_JOB_NAMESPACE, LABEL_JOB_UID, LABEL_ROLE, Role
from harborrl_operator.observed import Object, labels, name_of, pod_phase

logger = logging.getLogger(__name__)

SWEEP_SECONDS = 60.0


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


async def _loss(cluster: Cluster, anchor: Object) -> str:
    """What the anchor has lost; empty while all is there.

    Read live, never from a cache: a wrong answer would kill the sandboxes of a running job.
    """
    owner = labels(anchor)
    namespace, name, uid = owner.get(LABEL_JOB_NAMESPACE), owner.get(LABEL_JOB), owner.get(LABEL_JOB_UID)
    if not (namespace and name and uid):
        logger.debug("anchor %s names no job; left alone", name_of(anchor))
        return ""
    job = await cluster.get(KIND, namespace, name)
    if job is None or job["metadata"]["uid"] != uid:
        return "its job is gone"
    server = (anchor.get("data") or {}).get("server")
    if not server or not anchor["metadata"].get("ownerReferences"):
        return ""  # the job's own anchor, which the servers of the job share
    pod = await cluster.get("Pod", namespace, server)
    return "its agent server is gone" if pod is None or pod_phase(pod) in ("Failed", "Succeeded") else ""
