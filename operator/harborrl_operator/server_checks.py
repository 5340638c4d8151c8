"""What our agent server cannot do yet is refused by name: it would end at its start, or abort every trial."""

from harborrl_operator.conditions import Verdict
from harborrl_operator.constants import Reason
from harborrl_operator.observed import Observed
from harborrl_operator.resolve import ResolvedJob

AGENTS = ("bash", "nop")
"""What our agent server runs for training (a test compares them with its own list); `oracle` needs a flag."""


def agent_is_known(job: ResolvedJob, _: Observed) -> Verdict | None:
    server = job.spec.agent_server
    if server.url or server.agent_name in AGENTS:
        return None
    return Verdict(
        Reason.FIELD_UNSUPPORTED,
        f"agentServer.agentName {server.agent_name[:80]!r} is not among the agents of this version:"
        f" {', '.join(AGENTS)}. Set one of them, or agentServer.url to a server that has yours.",
    )


def image_template_is_known(job: ResolvedJob, _: Observed) -> Verdict | None:
    """I10, for a server of ours: one that meets such a template ends at its start, before any preflight."""
    template = job.spec.agent_server.sandbox.images.template
    if job.spec.agent_server.url or template is None:
        return None
    try:
        template.format(task="", hash="")
    except (KeyError, IndexError, ValueError, AttributeError):
        return Verdict(
            Reason.IMAGE_UNRESOLVED,
            f"agentServer.sandbox.images.template {template[:80]!r} may hold {{task}} and {{hash}} in braces and no"
            " others. Correct it, or leave it out.",
        )
    return None
