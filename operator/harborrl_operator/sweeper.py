"""Removes sandbox anchors whose job is gone; the garbage collector then takes the sandboxes.

An anchor cannot be owned by its job: owner references do not cross namespaces.
"""

import logging

from harborrl_operator.cluster import Cluster
from harborrl_operator.constants import KIND, LABEL_JOB, LABEL_JOB_NAMESPACE, LABEL_JOB_UID, LABEL_ROLE, Role
from harborrl_operator.observed import Object, labels, name_of

logger = logging.getLogger(__name__)

SWEEP_SECONDS = 60.0


async def sweep(cluster: Cluster) -> int:
    """Number of anchors removed. Raises ClusterError when the API server does not answer."""
    removed = 0
    for anchor in await cluster.find("ConfigMap", None, f"{LABEL_ROLE}={Role.ANCHOR}"):
        if await _is_orphan(cluster, anchor):
            meta = anchor["metadata"]
            await cluster.delete("ConfigMap", meta["namespace"], name_of(anchor), meta["uid"])
            logger.info("removed anchor %s/%s: its job is gone", meta["namespace"], name_of(anchor))
            removed += 1
    return removed


async def _is_orphan(cluster: Cluster, anchor: Object) -> bool:
    """Read live, never from a cache: a wrong answer would kill the sandboxes of a running job."""
    owner = labels(anchor)
    namespace, name, uid = owner.get(LABEL_JOB_NAMESPACE), owner.get(LABEL_JOB), owner.get(LABEL_JOB_UID)
    if not (namespace and name and uid):
        logger.debug("anchor %s names no job; left alone", name_of(anchor))
        return False
    job = await cluster.get(KIND, namespace, name)
    return job is None or job["metadata"]["uid"] != uid
