"""Which agents a request may name. Never an import path: it would run any code that the image holds."""

from typing import Any

from harbor.models.trial.config import AgentConfig

from harborrl_agent_server.contract import RunRequest
from harborrl_agent_server.endpoints import checked_endpoint
from harborrl_agent_server.settings import Settings

BASH = "harborrl_agent_server.agents.bash:BashAgent"

KNOWN = ("bash", "nop", "oracle")


class InvalidAgentError(Exception):
    """The request's agent cannot run here."""


def agent_config(request: RunRequest, settings: Settings) -> AgentConfig:
    """Harbor's agent config for a request; raises `InvalidAgentError` or `EndpointRefusedError`, both for the user.

    The model's name goes past Harbor's own field, which would load its model library: six seconds and 170 MB.
    """
    name = request.agent_name or settings.agent_name
    timeouts: dict[str, Any] = {
        "override_timeout_sec": settings.budgets.agent_timeout_s,
        "override_setup_timeout_sec": settings.budgets.agent_setup_s,
    }
    if name == "nop":
        return AgentConfig(name="nop", **timeouts)
    if name == "oracle":
        if not settings.allow_oracle:
            raise InvalidAgentError(
                "agent oracle runs the task's own solution; start the server with --allow-oracle to check tasks with it"
            )
        return AgentConfig(name="oracle", **timeouts)
    if name != "bash":
        raise InvalidAgentError(f"agent {name[:80]!r} is not available; one of {', '.join(KNOWN)}")
    kwargs = {
        **settings.agent_kwargs,
        "session_url": checked_endpoint(request.base_url),
        "model": request.model.removeprefix("openai/"),
        "sampling_params": request.sampling_params,
        "max_seq_len": request.max_seq_len,
    }
    return AgentConfig(import_path=BASH, kwargs=kwargs, **timeouts)
