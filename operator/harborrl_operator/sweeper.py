"""Removes from sandbox namespaces what nobody stands behind any more.

With an anchor's end the garbage collector takes its sandboxes; a binding lets the agent servers of a namespace act
there.

Of a job's own anchor that is the job while it runs, of an agent server's the pod. Neither can be the anchor's owner:
owner references do not cross namespaces. A server that is told to stop removes its anchor itself; one that is killed
cannot, and its successor is another pod and may not judge it. A job that is refused or suspended has no server: what
is left goes then, so that nothing waits for the operator when such a job is deleted.
"""

import logging

from harborrl_operator import metrics
from harborrl_operator.allowed import if_allowed
from harborrl_operator.cluster import Cluster
from harborrl_operator.constants import (
    KIND,
    LABEL_JOB,
    LABEL_JOB_NAMESPACE,
    LABEL_JOB_UID,
    LABEL_MANAGED_BY,
    LABEL_ROLE,
    MANAGED_BY,
    Phase,
    Role,
)
from harborrl_operator.errors import ClusterError
from harborrl_operator.models import Settings
from harborrl_operator.observed import Object, is_terminating, labels, name_of, pod_phase

logger = logging.getLogger(__name__)

SWEEP_SECONDS = 60.0

_CLOSED: Object = {}
"""In the place of a job that we may not read."""


async def sweep(cluster: Cluster, settings: Settings) -> int:
    """Number of objects removed. Raises the first ClusterError once the round is over: one object holds up no other."""
    removed, errors = 0, list[ClusterError]()
    # Only the chart's sandbox namespace is ours to look into when we serve a list of namespaces.
    within = settings.sandbox_namespace if settings.namespaces else None
    for kind, selector, loss_of in (
        ("ConfigMap", f"{LABEL_ROLE}={Role.ANCHOR}", _loss_of_anchor),
        ("RoleBinding", f"{LABEL_MANAGED_BY}={MANAGED_BY},{LABEL_JOB_NAMESPACE}", _loss_of_binding),
    ):
        for thing in await cluster.find(kind, within, selector):
            try:
                loss = await loss_of(cluster, thing, settings)
                if loss:
                    await _remove(cluster, kind, thing, loss)
                    removed += 1
            except ClusterError as error:
                errors.append(error)
    if errors:
        raise errors[0]
    return removed


async def _remove(cluster: Cluster, kind: str, thing: Object, loss: str) -> None:
    meta = thing["metadata"]
    await cluster.delete(kind, meta["namespace"], name_of(thing), meta["uid"])
    logger.info("removed %s %s/%s: %s", kind, meta["namespace"], name_of(thing), loss)
    metrics.SWEPT.labels(kind).inc()


async def _loss_of_anchor(cluster: Cluster, anchor: Object, settings: Settings) -> str:
    """What the anchor has lost; empty while all is there.

    Read live, never from a cache: a wrong answer would kill the sandboxes of a running job. So where we may not look
    the anchor stays: a Role that an upgrade takes away for a moment and a namespace that is gone answer alike.
    """
    owner = labels(anchor)
    namespace, name, uid = owner.get(LABEL_JOB_NAMESPACE), owner.get(LABEL_JOB), owner.get(LABEL_JOB_UID)
    is_served = not settings.namespaces or namespace in settings.namespaces
    if not (namespace and name and uid and is_served):
        logger.debug("anchor %s names no job of ours; left alone", name_of(anchor))
        return ""
    asked = cluster.get(KIND, namespace, name)
    job = await (if_allowed(asked, _CLOSED) if settings.namespaces else asked)
    if job is _CLOSED:
        return ""
    if job is None or job["metadata"]["uid"] != uid:
        return "its job is gone"
    if (job.get("status") or {}).get("finishedAt"):
        return "its job has finished"
    server = (anchor.get("data") or {}).get("server")
    if not server or not anchor["metadata"].get("ownerReferences"):  # the job's own, which its servers share
        released = (job.get("status") or {}).get("phase") in (Phase.REFUSED, Phase.SUSPENDED)
        return "its job holds no agent server" if released and await _has_no_server(cluster, namespace, name) else ""
    pod = await cluster.get("Pod", namespace, server)
    return "its agent server is gone" if pod is None or pod_phase(pod) in ("Failed", "Succeeded") else ""


async def _has_no_server(cluster: Cluster, namespace: str, job: str) -> bool:
    """Neither one that leaves nor one that comes: it would look for the anchor that it made or found."""
    selector = f"{LABEL_JOB}={job},{LABEL_ROLE}={Role.AGENT_SERVER}"
    return not any([await cluster.find(kind, namespace, selector) for kind in ("Deployment", "Pod")])


async def _loss_of_binding(cluster: Cluster, binding: Object, settings: Settings) -> str:
    """A binding that outlives its namespace would give its rights to whoever makes one of that name again."""
    name = labels(binding)[LABEL_JOB_NAMESPACE]
    if settings.namespaces and name not in settings.namespaces:
        return ""  # another operator's
    try:
        namespace = await cluster.get("Namespace", None, name)
    except ClusterError as error:
        if settings.namespaces and error.is_refusal:
            return "its namespace, and with it our rights there, is gone"
        raise
    if namespace is None:
        return "its namespace is gone"
    if is_terminating(namespace):
        return "its namespace goes"
    is_older = binding["metadata"]["creationTimestamp"] < namespace["metadata"]["creationTimestamp"]
    return "its namespace is another one of that name" if is_older else ""
