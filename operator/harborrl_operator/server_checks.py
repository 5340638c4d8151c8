"""What our agent server cannot do yet is refused by name: it would end at its start, or abort every trial.

So is what a server of the user's own never hears of: nobody would act on it.
"""

import re
from collections.abc import Iterator
from typing import Any

from harborrl_operator.conditions import Verdict
from harborrl_operator.constants import Reason
from harborrl_operator.models.agent_server import AGENT_NAME
from harborrl_operator.observed import Observed
from harborrl_operator.resolve import ResolvedJob
from harborrl_operator.sandbox_defaults import AGENTS

_HEEDED_WITH_URL = {
    "url",
    "agentName",
    "adminSecretRef",
    "environmentStartSeconds",
    "agentSetupSeconds",
    "agentTimeoutSeconds",
    "verifierSeconds",
    "cleanupSeconds",
    "sandbox.backend",  # documented as needing `url`: it says what that server is
}


def own_server_heeds_every_field(job: ResolvedJob, _: Observed) -> Verdict | None:
    """Whoever sets a runtime class for sandboxes believes that it holds. A value that is the default may stand."""
    server = job.spec.agent_server
    if not server.url:
        return None
    unheard = [f"agentServer.{path}" for path in _unheard(server.model_dump(by_alias=True, exclude_defaults=True))]
    if not unheard:
        return None
    it = "it" if len(unheard) == 1 else "them"
    return Verdict(
        Reason.FIELD_UNSUPPORTED,
        f"{', '.join(unheard)}: a server of your own (agentServer.url) never hears of {it}. Remove {it} here and set"
        " the like on that server, or leave agentServer.url out to have a server of ours.",
    )


_MAPS = {
    "agentKwargs",
    "agents",
    "podOverrides",
    "sandbox.images.map",
    "sandbox.nodeSelector",
    "sandbox.nodeSelectorForGpu",
    "sandbox.podOverrides",
}
"""Of names that are the user's."""


def _unheard(values: dict[str, Any], above: str = "") -> Iterator[str]:
    """Dotted names of the fields that hold something and count for a server of ours alone."""
    for name, value in values.items():
        path = f"{above}{name}"
        if path in _HEEDED_WITH_URL:
            continue
        if isinstance(value, dict) and path not in _MAPS:
            yield from _unheard(value, f"{path}.")
        elif value not in ({}, []):
            yield path


def own_agents_have_names(job: ResolvedJob, _: Observed) -> Verdict | None:
    """The schema can say nothing of the keys of a map."""
    server = job.spec.agent_server
    for name in server.agents if server.url is None else ():
        if name in (*AGENTS, "oracle"):
            said = "is an agent of the server's: choose another name"
        elif not re.fullmatch(AGENT_NAME, name):
            said = "is no name: 63 of a-z, 0-9 and hyphens at most, a letter first"
        else:
            continue
        return Verdict(Reason.FIELD_UNSUPPORTED, f"agentServer.agents: {name[:80]!r} {said}.")
    return None


def agent_is_known(job: ResolvedJob, _: Observed) -> Verdict | None:
    server = job.spec.agent_server
    every = (*AGENTS, *server.agents)
    named = [("agentName", server.agent_name), *(("allowedAgents", name) for name in server.allowed_agents)]
    unknown = next(((field, name) for field, name in named if name not in every), None)
    if server.url or unknown is None:
        return None
    field, name = unknown
    said = f"agentServer.{field}: {name[:80]!r} is not among the agents of this job: {', '.join(every)}."
    other = ", name its class in agentServer.agents, or set agentServer.url to a server that has yours"
    nothing = "; it runs a task's own solution, which is nothing to train on"
    return Verdict(Reason.FIELD_UNSUPPORTED, f"{said} Set one of them{nothing if name == 'oracle' else other}.")


def agent_is_allowed(job: ResolvedJob, _: Observed) -> Verdict | None:
    """Every trial would be answered with a refusal."""
    server = job.spec.agent_server
    if server.url or server.agent_name in job.allowed_agents:
        return None
    return Verdict(
        Reason.AGENT_NOT_ALLOWED,
        f"agentServer.allowedAgents is {', '.join(job.allowed_agents)} and every trial names agentServer.agentName"
        f" {server.agent_name}. Add it to the list, or leave the list out.",
    )


def workers_have_slots(job: ResolvedJob, _: Observed) -> Verdict | None:
    server = job.spec.agent_server
    if server.url or server.workers <= job.max_concurrent:
        return None
    return Verdict(
        Reason.WORKERS_EXCEED_SLOTS,
        f"agentServer.workers is {server.workers} and agentServer.maxConcurrent {job.max_concurrent}: the slots are"
        f" shared among the workers, and some would have none. Set workers to at most {job.max_concurrent}; one holds"
        " hundreds of trials.",
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
