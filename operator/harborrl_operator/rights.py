"""Looks whether the rights that the operator made are still there, in the phases in which pods begin to need them.

While the agent server starts, these are what it and the preflight need; a supervisor's are looked at from then on.

Nothing of them is watched. A driver whose supervisor may not write trains unseen, and one that may not read is not
reached by a suspend.
"""

import asyncio
from datetime import datetime

from harborrl_operator.allowed import if_allowed
from harborrl_operator.clock import seconds_since
from harborrl_operator.cluster import Cluster
from harborrl_operator.constants import Phase
from harborrl_operator.models import HarborRLJob
from harborrl_operator.observed import Object
from harborrl_operator.progress import Progress, read_progress
from harborrl_operator.resources import rbac

_BEGINNING = (Phase.STARTING_AGENT_SERVER, Phase.PREFLIGHT, Phase.STARTING_TRAINER, Phase.SUSPENDING)

SILENT_SECONDS = 300
"""A supervisor writes when something changes; one that has written nothing for so long may not be allowed to."""

_UNKNOWN: Object = {}
"""In the place of one that we may not read."""


async def read_rights(
    cluster: Cluster, job: HarborRLJob, report: str | None, now: datetime
) -> dict[rbac.Right, Object | None]:
    """By kind and name, None for one that is missing; empty while nobody needs to look."""
    if not _must_be_looked_at(job, report, now):
        return {}
    wanted = rbac.first_rights_in(job) if job.status.phase == Phase.STARTING_AGENT_SERVER else rbac.rights_in(job)
    asked = (if_allowed(cluster.get(kind, job.namespace, name), _UNKNOWN) for kind, name in wanted)
    found = await asyncio.gather(*asked)
    return {right: thing for right, thing in zip(wanted, found, strict=True) if thing is not _UNKNOWN}


def _must_be_looked_at(job: HarborRLJob, report: str | None, now: datetime) -> bool:
    if job.status.phase in _BEGINNING:
        return True
    return job.status.phase == Phase.RUNNING and _is_silent(job, report, now)


def _is_silent(job: HarborRLJob, report: str | None, now: datetime) -> bool:
    progress = read_progress(report, job.uid)
    if not isinstance(progress, Progress) or progress.attempt != job.status.attempt or progress.observed_at is None:
        return True
    return seconds_since(progress.observed_at, now) > SILENT_SECONDS
