"""Fifteen exit statuses in the five kinds that a chart can hold apart. Pure."""

from enum import StrEnum

from harborrl_agent_server.contract import ExitStatus


class Family(StrEnum):
    GRADED = "graded"
    """The agent ended by itself and the verifier graded it."""
    LIMIT = "limit"
    """Time, turns or tokens ran out."""
    FAULT = "fault"
    """The agent or the verifier broke; scored all the same."""
    ABORTED = "aborted"
    """Cancelled from outside."""
    INFRA = "infra"
    """Never a training signal, and somebody should look."""


_FAMILIES = {
    ExitStatus.SUBMITTED: Family.GRADED,
    ExitStatus.TURN_LIMIT: Family.LIMIT,
    ExitStatus.TIME_LIMIT: Family.LIMIT,
    ExitStatus.SEQUENCE_LENGTH_LIMIT: Family.LIMIT,
    ExitStatus.VERIFIER_ERROR: Family.FAULT,
    ExitStatus.AGENT_ERROR: Family.FAULT,
    ExitStatus.ABORTED: Family.ABORTED,
}


def family(exit_status: str) -> Family:
    """An unknown status counts as infrastructure: it is no training signal either."""
    try:
        return _FAMILIES.get(ExitStatus(exit_status), Family.INFRA)
    except ValueError:
        return Family.INFRA
