"""How kopf watches: which kinds, where, filtered by the API server, and what it must leave alone.

kopf keeps one stream a kind and namespace. What it does in trouble was tried against a real API server
(tests/api/test_watch_faults.py): it lists again after 410, waits after 429, replaces a stream that has been silent for
70 s (bookmarks come every minute), and ends, and we with it, after any other error in a stream.
"""

import asyncio
import logging

import kopf

from harborrl_operator import handlers
from harborrl_operator.constants import GROUP, LABEL_JOB, LABEL_ROLE, Role
from harborrl_operator.models import Settings
from harborrl_operator.runtime import Runtime

__all__ = ["handlers", "kopf_settings", "watch"]

CHILDREN = (
    ("apps", "v1", "deployments"),
    ("v1", "pods"),
    ("v1", "configmaps"),
    ("v1", "services"),
    ("ray.io", "v1", "rayclusters"),
)
SELECTOR = f"{LABEL_JOB},{LABEL_ROLE} notin ({Role.SANDBOX},{Role.ANCHOR})"
"""Sandboxes and their anchors are made in hundreds by agent servers; no decision looks at them."""


def kopf_settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    # Our events are written by hand: kopf would turn log lines into events.
    settings.posting.enabled = False
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 10
    # No finalizer and no annotation: deletion must work while we are down.
    settings.persistence.finalizer = f"{GROUP}/never-set"
    # What is watched is known: no right to read namespaces and CustomResourceDefinitions is needed.
    settings.scanning.disabled = True
    settings.process.ultimate_exiting_timeout = None  # the kubelet does that
    for child in CHILDREN:
        settings.watching.label_selectors[child] = SELECTOR
    return settings


async def watch(runtime: Runtime, settings: Settings, stop: asyncio.Event) -> asyncio.Task[None]:
    """Start kopf; the task ends after `stop`, or with the error that ended kopf."""
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)  # it would log every event of every object
    before = asyncio.all_tasks()
    tasks = await kopf.spawn_tasks(
        settings=kopf_settings(),
        memo=kopf.Memo(runtime=runtime),
        standalone=True,  # the Lease decides who leads
        clusterwide=not settings.namespaces,
        namespaces=settings.namespaces,
        stop_flag=stop,
    )
    return asyncio.create_task(kopf.run_tasks(tasks, ignored=before), name="kopf")
