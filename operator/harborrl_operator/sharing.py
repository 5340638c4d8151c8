"""I5: jobs that bring the same agent server share its slots; what others were promised is not there to be taken.

Each job says what it claims by its `Admitted` condition before it takes anything, and of two claims that are made at
once the earlier job's counts: both passes come to the same answer, whichever runs first.
"""

from collections.abc import Iterable
from urllib.parse import urlsplit

from harborrl_operator.arguments import InvalidArgumentsError
from harborrl_operator.constants import AGENT_PORT, ConditionType, Reason
from harborrl_operator.models import HarborRLJob, Settings
from harborrl_operator.resolve import resolve

_PORTS = {"http": 80, "https": 443}


def normal_url(url: str, namespace: str) -> str:
    """One spelling of one server, as a pod of `namespace` resolves it: `agents` is `agents.<namespace>.svc`."""
    parts = urlsplit(url)
    labels = (parts.hostname or "").rstrip(".").split(".")
    if len(labels) == 1:
        labels.append(namespace)
    if len(labels) == 2:
        labels.append("svc")
    if "svc" in labels[2:]:
        labels = labels[: labels.index("svc", 2) + 1]  # the cluster's domain may be left out
    port = parts.port or _PORTS.get(parts.scheme, 0)
    return f"{parts.scheme.lower()}://{'.'.join(labels)}:{port}{parts.path.rstrip('/')}"


def promised(job: HarborRLJob, others: Iterable[HarborRLJob], settings: Settings) -> int:
    """Trials at once that other jobs may have on the server that `job` brings; 0 for a server of its own."""
    if job.spec.agent_server.url is None:
        return 0
    server = _server(job)
    return sum(
        _demand(other, settings)
        for other in others
        if other.uid != job.uid and _server(other) == server and _counts(other, job)
    )


def is_claimed(job: HarborRLJob) -> bool:
    """Whether other passes can see that this job is about to take slots."""
    return _admitted(job) in (("Unknown", Reason.AWAITING_PREFLIGHT), ("True", Reason.ADMITTED))


def _server(job: HarborRLJob) -> str:
    owned = f"http://{job.names.agent}.{job.namespace}.svc:{AGENT_PORT}"
    return normal_url(job.spec.agent_server.url or owned, job.namespace)


def _counts(other: HarborRLJob, job: HarborRLJob) -> bool:
    if other.status.finished_at or other.spec.suspend:
        return False
    status, _ = _admitted(other)
    return status == "True" or (is_claimed(other) and _turn(other) < _turn(job))


def _turn(job: HarborRLJob) -> tuple[bool, str, str, str]:
    """A run that goes on stands before one that begins, an older job before a younger one."""
    return job.status.attempt == 1, job.created_at, job.namespace, job.name


def _admitted(job: HarborRLJob) -> tuple[str, str]:
    conditions = (condition for condition in job.status.conditions if condition.type is ConditionType.ADMITTED)
    return next(((condition.status, condition.reason) for condition in conditions), ("Unknown", ""))


def _demand(job: HarborRLJob, settings: Settings) -> int:
    try:
        return resolve(job, settings).demand.in_flight
    except InvalidArgumentsError:
        return 0  # a running attempt whose spec was spoilt since; it cannot start another
