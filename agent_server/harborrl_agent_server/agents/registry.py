"""Which agents a request may name. Never an import path: only who starts the server says which code it runs."""

import importlib
from typing import Any

import httpx
from harbor.agents.base import BaseAgent
from harbor.models.trial.config import AgentConfig

from harborrl_agent_server.agents import own
from harborrl_agent_server.agents.tools import Part
from harborrl_agent_server.contract import RunRequest
from harborrl_agent_server.endpoints import checked_endpoint
from harborrl_agent_server.errors import InvalidAgentError, StartupError
from harborrl_agent_server.gateway_serve import IN_SANDBOX, host_rules
from harborrl_agent_server.gateway_session import ModelSession, Upstream
from harborrl_agent_server.settings import Settings
from harborrl_agent_server.threads import in_thread

PLACES = {
    "bash": "harborrl_agent_server.agents.bash:BashAgent",
    "terminus-2": "harborrl_agent_server.agents.terminus:StrictTerminus2",
    "mini-swe-agent": "harborrl_agent_server.agents.mini_swe:PreinstalledMiniSweAgent",
}
"""Agents that ask a model."""


TOOLS: dict[str, Part] = {"terminus-2": "terminal", "mini-swe-agent": "all"}
"""What of the tools bundle an agent needs where the task's image lacks it."""


async def prepare(settings: Settings) -> None:
    """Load the server's own agent before anybody waits for it, and check its options; raises `StartupError`.

    So are all agents that `--agent` names: what is wrong with one is said before a trial asks for it.
    """
    for name, import_path in settings.own_agents.items():
        try:
            found = await loaded(import_path)
        except Exception as error:  # a module may raise anything while it is imported
            said = f"{type(error).__name__}: {' '.join(str(error).split())}"
            raise StartupError(f"--agent {name}={import_path} cannot be imported ({said})") from error
        own.take(name, import_path, found)
    place = place_of(settings.agent_name, settings)
    if place is None:
        return
    agent = await loaded(place)
    try:
        agent.preflight(settings.agent_kwargs)
    except ValueError as error:
        raise StartupError(f"--agent-kwargs: {' '.join(str(error).split())}") from error


def place_of(name: str, settings: Settings) -> str | None:
    """Where its class is; None for an agent that asks no model."""
    return own.place(name) if name in settings.own_agents else PLACES.get(name)


LOADED: dict[str, type[BaseAgent]] = {}
"""By place. `sys.modules` also names a module that another trial's thread has begun to load."""


async def loaded(place: str) -> type[BaseAgent]:
    """An agent's class. terminus-2 brings a model library of seconds and 170 MB, loaded beside the running trials."""
    if place not in LOADED:
        LOADED[place] = await in_thread(imported, place)
    return LOADED[place]


def imported(place: str) -> type[BaseAgent]:
    """Raises no more than an `Exception`: a script that leaves when it has run would end the server without a word."""
    module, name = place.split(":")
    try:
        found: type[BaseAgent] = getattr(importlib.import_module(module), name)
    except Exception:
        raise
    except BaseException as error:
        raise ImportError(f"it raises {type(error).__name__} {error}") from error
    return found


def agent_config(request: RunRequest, settings: Settings) -> AgentConfig:
    """Harbor's agent config for a request; raises `InvalidAgentError` or `EndpointRefusedError`, both for the user.

    Model, endpoint and key are not in it, because Harbor writes it to disk: agents get them from their trial's scope.
    """
    name = chosen(request, settings)
    timeouts: dict[str, Any] = {
        "override_timeout_sec": settings.budgets.agent_timeout_s,
        "override_setup_timeout_sec": settings.budgets.agent_setup_s,
    }
    place = place_of(name, settings)
    if place is None:
        return AgentConfig(name=name, **timeouts)
    checked_endpoint(request.base_url, host_rules(settings))
    kwargs = settings.agent_kwargs if name == settings.agent_name else {}
    return AgentConfig(import_path=place, kwargs=dict(kwargs), **timeouts)


def chosen(request: RunRequest, settings: Settings) -> str:
    name = request.agent_name or settings.agent_name
    if name == "oracle":
        if not settings.allow_oracle:
            raise InvalidAgentError(
                "agent oracle runs the task's own solution; start the server with --allow-oracle to check tasks with it"
            )
    elif name not in settings.allowed_agents:
        raise InvalidAgentError(f"agent {name[:80]!r} is not available; one of {', '.join(settings.allowed_agents)}")
    return name


def tools_of(request: RunRequest, settings: Settings) -> Part | None:
    """Of a bundle that is configured. What an agent of the user's own needs, only the user knows: all of it."""
    name = chosen(request, settings)
    return "all" if name in settings.own_agents else TOOLS.get(name)


def model_session(
    request: RunRequest, settings: Settings, client: httpx.AsyncClient, progress: dict[str, Any], warnings: list[str]
) -> ModelSession | None:
    """The session of a request's agent, closed until the agent's phase; None for agents that ask no model."""
    name = chosen(request, settings)
    if place_of(name, settings) is None:
        return None
    upstream = Upstream(
        url=checked_endpoint(request.base_url, host_rules(settings)),
        model=request.model.removeprefix("openai/"),
        sampling_params=request.sampling_params,
        max_seq_len=request.max_seq_len,
        api_key=request.api_key,
    )
    return ModelSession(upstream, client, progress, warnings, inside=name in IN_SANDBOX or name in settings.own_agents)
