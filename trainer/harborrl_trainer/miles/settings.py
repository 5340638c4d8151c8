"""What the job tells the rollout process through its environment (docs/contracts.md, "Miles' rollout process")."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, cast
from urllib.parse import urlsplit

from harborrl_trainer.rollout.outcomes import OnAgentTimeout

Value = TypeVar("Value")

POLICIES = ("grade", "zero", "abort")


class SettingsError(ValueError):
    """An environment variable has a value that cannot be meant. The message names it and what is allowed."""


@dataclass(frozen=True)
class Settings:
    agent_server_url: str = "http://localhost:11000"
    """AGENT_SERVER_URL, else SWE_AGENT_URL; the default is the one that Miles' example documents."""
    model_name: str = "model"
    """AGENT_MODEL_NAME, else SWE_AGENT_MODEL_NAME; agents see it as `openai/<name>`."""
    external_host: str = ""
    """MILES_ROUTER_EXTERNAL_HOST: under which agents reach the session server; empty leaves Miles' own address."""
    admin_secret: str = ""
    """HARBOR_ADMIN_SECRET, for `/flush`."""
    ceiling_s: int = 7200
    """AGENT_TRIAL_TIMEOUT, seconds from the moment a trial is sent. Above the agent server's budgets, or its verdicts
    never arrive."""
    on_agent_timeout: OnAgentTimeout = "grade"
    """HARBORRL_ON_AGENT_TIMEOUT."""
    budget_s: int = 0
    """HARBORRL_TRIAL_BUDGET_SECONDS: the sum of the agent server's budgets; it refuses a run that has less left."""
    trials_dir: Path | None = None
    """HARBORRL_TRIALS_DIR; without it no trial log is written."""
    max_in_flight: int | None = None
    """HARBORRL_MAX_IN_FLIGHT: places while the agent server does not say its capacity; None: no bound."""
    give_up_groups: int | None = None
    """HARBORRL_GIVE_UP_GROUPS: dropped groups in a row that end the run; 0: never; None: twice what is submitted at
    once."""
    verdict_file: Path | None = None
    """HARBORRL_VERDICT_FILE: where the reason of such an end is written for whoever started the driver."""
    agent_name: str = ""
    """HARBORRL_AGENT_NAME: put over the data set's column."""
    start_rollout: int = 0
    """HARBORRL_START_ROLLOUT, for trial records where Miles tells nobody which rollout it collects."""
    session_s: int = 300
    """HARBORRL_SESSION_TIMEOUT: seconds to open a session, and again to hand over its samples. Miles' own limits (120 s
    to collect, 120 s to delete) fit into it; opening has none there."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "Settings":
        """Raises SettingsError. An empty value counts as unset."""
        given = {name: text.strip() for name, text in environment.items() if text.strip()}
        defaults = cls()
        return cls(
            agent_server_url=_url(given, ("AGENT_SERVER_URL", "SWE_AGENT_URL"), defaults.agent_server_url),
            model_name=_first(given, ("AGENT_MODEL_NAME", "SWE_AGENT_MODEL_NAME")) or defaults.model_name,
            external_host=given.get("MILES_ROUTER_EXTERNAL_HOST", ""),
            admin_secret=given.get("HARBOR_ADMIN_SECRET", ""),
            ceiling_s=_whole(given, "AGENT_TRIAL_TIMEOUT", defaults.ceiling_s, least=1, unit="seconds"),
            on_agent_timeout=_policy(given),
            budget_s=_whole(given, "HARBORRL_TRIAL_BUDGET_SECONDS", defaults.budget_s, least=0, unit="seconds"),
            trials_dir=_optional(given, "HARBORRL_TRIALS_DIR", _path),
            max_in_flight=_optional(given, "HARBORRL_MAX_IN_FLIGHT", _at_least(1, "trials")),
            give_up_groups=_optional(given, "HARBORRL_GIVE_UP_GROUPS", _at_least(0, "groups")),
            verdict_file=_optional(given, "HARBORRL_VERDICT_FILE", _path),
            agent_name=given.get("HARBORRL_AGENT_NAME", ""),
            start_rollout=_whole(given, "HARBORRL_START_ROLLOUT", defaults.start_rollout, least=0, unit="rollouts"),
            session_s=_whole(given, "HARBORRL_SESSION_TIMEOUT", defaults.session_s, least=1, unit="seconds"),
        )


def _first(given: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((given[name] for name in names if name in given), "")


def _url(given: Mapping[str, str], names: tuple[str, ...], default: str) -> str:
    name = next((name for name in names if name in given), "")
    if not name:
        return default
    parts = urlsplit(given[name])
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise SettingsError(f"{name} is {given[name]!r}; it must be an http or https URL with a host")
    return given[name].rstrip("/")


def _policy(given: Mapping[str, str]) -> OnAgentTimeout:
    text = given.get("HARBORRL_ON_AGENT_TIMEOUT", "grade")
    if text not in POLICIES:
        raise SettingsError(f"HARBORRL_ON_AGENT_TIMEOUT is {text!r}; it must be one of {', '.join(POLICIES)}")
    return cast("OnAgentTimeout", text)


def _whole(given: Mapping[str, str], name: str, default: int, *, least: int, unit: str) -> int:
    return default if name not in given else _at_least(least, unit)(name, given[name])


def _at_least(least: int, unit: str) -> Callable[[str, str], int]:
    def parse(name: str, text: str) -> int:
        if not text.isascii() or not text.removeprefix("-").isdigit() or int(text) < least:
            raise SettingsError(f"{name} is {text!r}; it must be a whole number of {unit}, {least} at least")
        return int(text)

    return parse


def _path(_name: str, text: str) -> Path:
    return Path(text)


def _optional(given: Mapping[str, str], name: str, parse: Callable[[str, str], Value]) -> "Value | None":  # noqa: UP047 - Python 3.10 syntax
    return parse(name, given[name]) if name in given else None
