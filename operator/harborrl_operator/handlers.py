"""Every kopf decorator. kopf watches and nothing more: an event names a job, the job goes into the queue."""

import time
from typing import Any

import kopf

from harborrl_operator.constants import GROUP, LABEL_JOB, LABEL_JOB_NAMESPACE, LABEL_ROLE, PLURAL, VERSION, Role
from harborrl_operator.liveness import HEARTBEAT
from harborrl_operator.runtime import Runtime
from harborrl_operator.work_queue import Key

_OURS = {LABEL_JOB: kopf.PRESENT}

_NO_CHILDREN = (Role.SANDBOX, Role.ANCHOR)
"""Made by agent servers in their hundreds: no decision looks at them, so none of them may ask for a pass."""


@kopf.on.event(GROUP, VERSION, PLURAL)
async def job_changed(
    namespace: str | None,
    name: str | None,
    status: kopf.Status,
    type: str | None,  # noqa: A002 - kopf passes it by this name
    memo: kopf.Memo,
    **_: Any,
) -> None:
    key = (namespace, name)
    memo.runtime.queue.add(key)
    if type == "DELETED":
        memo.runtime.jobs.forget(key)
        memo.runtime.applied.forget_namespace(namespace)
        memo.runtime.pod_events.forget(key)
        memo.runtime.sweep_soon()
    else:
        memo.runtime.jobs.note(key, status)


@kopf.on.event("apps", "v1", "deployments", labels=_OURS)
@kopf.on.event("v1", "pods", labels=_OURS)
@kopf.on.event("v1", "configmaps", labels=_OURS)
@kopf.on.event("v1", "services", labels=_OURS)
@kopf.on.event("ray.io", "v1", "rayclusters", labels=_OURS)
async def child_changed(
    name: str | None,
    body: kopf.Body,
    labels: kopf.Labels,
    type: str | None,  # noqa: A002 - kopf passes it by this name
    memo: kopf.Memo,
    **_: Any,
) -> None:
    if name == HEARTBEAT:
        memo.runtime.liveness.seen()
        return
    memo.runtime.applied.seen(body["kind"], body, is_deleted=type == "DELETED")
    job, namespace, role = labels.get(LABEL_JOB), labels.get(LABEL_JOB_NAMESPACE), labels.get(LABEL_ROLE)
    if job and namespace and role not in _NO_CHILDREN:
        _ask(memo.runtime, (namespace, job), role, body, is_deleted=type == "DELETED")
    if type == "DELETED" and role == Role.AGENT_SERVER:
        memo.runtime.sweep_soon()


def _ask(runtime: Runtime, job: Key, role: str | None, body: kopf.Body, *, is_deleted: bool) -> None:
    if body["kind"] != "Pod" or role != Role.TRAINER:
        runtime.queue.add(job)
        return
    delay = runtime.pod_events.delay(job, body, time.monotonic(), is_deleted=is_deleted)
    if delay is not None:
        runtime.queue.add(job, delay)
