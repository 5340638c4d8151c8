"""Every kopf decorator. kopf watches and nothing more: an event names a job, the job goes into the queue."""

import logging
import os
from typing import Any

import kopf

from harborrl_operator.cluster import Cluster
from harborrl_operator.constants import GROUP, LABEL_JOB, LABEL_JOB_NAMESPACE, LABEL_ROLE, PLURAL, VERSION, Role
from harborrl_operator.liveness import HEARTBEAT
from harborrl_operator.models import Settings
from harborrl_operator.runtime import Runtime

_OURS = {LABEL_JOB: kopf.PRESENT}

_NO_CHILDREN = (Role.SANDBOX, Role.ANCHOR)
"""Made by agent servers in their hundreds: no decision looks at them, so none of them may ask for a pass."""


@kopf.on.startup()
async def start(settings: kopf.OperatorSettings, memo: kopf.Memo, **_: Any) -> None:
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)  # it would log every event of every object
    # Our events are written by hand: kopf would turn log lines into events.
    settings.posting.enabled = False
    settings.networking.request_timeout = 30
    # No finalizer and no annotation: deletion must work while we are down.
    settings.persistence.finalizer = f"{GROUP}/never-set"
    memo.runtime = Runtime(await Cluster.connect(), Settings.from_environment(os.environ))
    await memo.runtime.start()


@kopf.on.cleanup()
async def stop(memo: kopf.Memo, **_: Any) -> None:
    await memo.runtime.stop()


@kopf.on.event(GROUP, VERSION, PLURAL)
async def job_changed(namespace: str | None, name: str | None, type: str | None, memo: kopf.Memo, **_: Any) -> None:  # noqa: A002 - kopf passes it by this name
    memo.runtime.queue.add((namespace, name))
    if type == "DELETED":
        memo.runtime.sweep_soon()


@kopf.on.event("apps", "v1", "deployments", labels=_OURS)
@kopf.on.event("v1", "pods", labels=_OURS)
@kopf.on.event("v1", "configmaps", labels=_OURS)
@kopf.on.event("ray.io", "v1", "rayclusters", labels=_OURS)
async def child_changed(
    name: str | None,
    labels: kopf.Labels,
    type: str | None,  # noqa: A002 - kopf passes it by this name
    memo: kopf.Memo,
    **_: Any,
) -> None:
    if name == HEARTBEAT:
        memo.runtime.liveness.seen()
        return
    job, namespace, role = labels.get(LABEL_JOB), labels.get(LABEL_JOB_NAMESPACE), labels.get(LABEL_ROLE)
    if job and namespace and role not in _NO_CHILDREN:
        memo.runtime.queue.add((namespace, job))
    if type == "DELETED" and role == Role.AGENT_SERVER:
        memo.runtime.sweep_soon()
