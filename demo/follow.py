"""Shows a job's story as it happens."""

from __future__ import annotations

import time
from collections.abc import Callable

from demo.cluster import Cluster
from demo.story import Job, is_finished, news, refusal

Look = Callable[[Job], str | None]
"""Called with each look at the job; a text ends the following with it as the reason."""


class StoppedError(Exception):
    """The following ended before the job did."""


def follow(cluster: Cluster, name: str, *, every: float, look: Look, patience: float = 300.0) -> Job:
    """Print what changes until the job is finished and return it.

    Raises StoppedError when the job is gone, when it stays refused for `patience` seconds, or when `look` says so.
    """
    started = time.monotonic()
    before: Job = {}
    refused_since: float | None = None
    for job in cluster.look(name, every=every):
        for line in news(before, job):
            print(f"[{time.monotonic() - started:6.0f} s] {line}", flush=True)  # noqa: T201 - a terminal program
        before = job
        if is_finished(job):
            return job
        if reason := look(job):
            raise StoppedError(reason)
        refused = refusal(job)
        if refused is None:
            refused_since = None
        elif refused_since is None:
            refused_since = time.monotonic()
        elif time.monotonic() - refused_since > patience:
            raise StoppedError(refused)
    message = f"HarborRLJob {name} is gone: somebody deleted it."
    raise StoppedError(message)
