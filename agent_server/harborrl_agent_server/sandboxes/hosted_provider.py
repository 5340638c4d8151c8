"""Sandboxes of a class that `--sandbox pkg.mod:Class` names: checked before anything listens."""

import asyncio
import importlib
import inspect
import logging
from collections.abc import Callable

from harbor.environments.base import BaseEnvironment
from harbor.models.trial.config import EnvironmentConfig

from harborrl_agent_server.errors import StartupError
from harborrl_agent_server.sandboxes import hosted
from harborrl_agent_server.sandboxes.once import Once
from harborrl_agent_server.scope import Standing
from harborrl_agent_server.settings import Settings

LOG = logging.getLogger(__name__)

PREFLIGHT_SECONDS = 60.0

CALLED = ("start", "stop", "exec", "upload_file", "upload_dir", "download_file", "download_dir")
"""Of Harbor's interface, with all arguments by name."""

CHOSEN = "Chosen"
"""The name in `hosted` under which Harbor finds the class."""


def environment_class(import_path: str) -> type[BaseEnvironment]:
    """Raises `StartupError` for what is no whole environment."""
    module, _, name = import_path.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except Exception as error:  # a module may raise anything while it is imported
        raise StartupError(f"--sandbox {import_path} cannot be imported ({type(error).__name__}: {error})") from error
    if not (inspect.isclass(found) and issubclass(found, BaseEnvironment)):
        raise StartupError(f"--sandbox {import_path} is no subclass of harbor.environments.base.BaseEnvironment")
    if inspect.isabstract(found):
        lacks = ", ".join(sorted(found.__abstractmethods__))
        raise StartupError(f"--sandbox {import_path} lacks {lacks}: name a whole environment")
    for method in CALLED:
        missing = parameters_missing(getattr(found, method), getattr(BaseEnvironment, method))
        if missing:
            raise StartupError(f"--sandbox {import_path}: {method} takes no {', '.join(missing)}, as Harbor's own does")
    return found


def parameters_missing(own: Callable[..., object], harbors: Callable[..., object]) -> list[str]:
    """Those that a method is called with by name."""
    takes = inspect.signature(own).parameters.values()
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in takes):
        return []
    named = {parameter.name for parameter in takes if parameter.kind is not inspect.Parameter.POSITIONAL_ONLY}
    return [name for name in inspect.signature(harbors).parameters if name not in named]


class HostedProvider:
    """Where such sandboxes run, and what sweeps them after a crash of this server, is the class's matter."""

    def __init__(self, settings: Settings, foreign: type[BaseEnvironment]) -> None:
        self.settings = settings
        self._foreign = foreign
        self._once = Once()

    @classmethod
    def from_settings(cls, settings: Settings) -> "HostedProvider":
        return cls(settings, environment_class(settings.sandbox))

    async def open(self) -> None:
        with self._once.opening():
            await self._open()

    async def _open(self) -> None:
        check = asyncio.to_thread(self._foreign.preflight, dict(self.settings.sandbox_config))
        try:
            async with asyncio.timeout(PREFLIGHT_SECONDS):
                await check
        except (Exception, SystemExit) as error:  # the class says in its own way what it lacks
            said = " ".join(str(error).split()) or type(error).__name__
            raise StartupError(f"--sandbox {self.settings.sandbox}: {said}") from error
        setattr(hosted, CHOSEN, hosted.hosted(self._foreign, self.settings))

    async def close(self) -> None:
        """Nothing is shared: each sandbox ends with its trial."""
        self._once.closed()

    async def standing(self) -> Standing:
        """Nobody starts another version of a server without a cluster."""
        return Standing.ALONE

    def environment(self) -> EnvironmentConfig:
        return EnvironmentConfig(import_path=f"{hosted.__name__}:{CHOSEN}")
