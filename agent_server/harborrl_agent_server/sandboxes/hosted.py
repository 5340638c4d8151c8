"""Any environment of Harbor's interface as a sandbox of ours: calls bounded, errors named, its end certain."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, override

from harbor.environments.base import BaseEnvironment, ExecResult

from harborrl_agent_server.sandboxes import commands
from harborrl_agent_server.sandboxes.hosting import GUARDED, Hosting
from harborrl_agent_server.scope import CURRENT
from harborrl_agent_server.settings import Settings


class Hosted(BaseEnvironment):
    """Stands before the foreign class in the order of resolution: `super()` is that class.

    What the class asks of itself, within a call or while it starts, passes by: how it bears its own errors is its
    own matter.
    """

    settings: Settings
    """Of the server; set on the class that `hosting` makes, as is `options_of_server`."""
    options_of_server: dict[str, Any]
    """Constructor arguments; not in Harbor's trial configuration, which is written to disk."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs | self.options_of_server)
        scope = CURRENT.get()
        folders = commands.folders(self.task_env_config.workdir, self._mount_targets(writable_only=True))
        self._hosting = Hosting(super(), scope, folders)
        scope.sandboxes.append(self._hosting)

    @override
    async def start(self, force_build: bool) -> None:
        await self._hosting.start(force_build)

    @override
    async def stop(self, delete: bool) -> None:
        await self._hosting.destroy()

    @override
    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        if GUARDED.get():
            return await super().exec(command, cwd=cwd, env=env, timeout_sec=timeout_sec, user=user)  # type: ignore[safe-super] # the foreign class
        return await self._hosting.exec(command, cwd=cwd, env=env, timeout_sec=timeout_sec, user=user)

    @override
    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        foreign = super().upload_file  # type: ignore[safe-super] # same
        await self._carry(lambda: foreign(source_path=source_path, target_path=target_path))

    @override
    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        foreign = super().upload_dir  # type: ignore[safe-super] # same
        await self._carry(lambda: foreign(source_dir=source_dir, target_dir=target_dir))

    @override
    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        foreign = super().download_file  # type: ignore[safe-super] # same
        await self._carry(lambda: foreign(source_path=source_path, target_path=target_path))

    @override
    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        foreign = super().download_dir  # type: ignore[safe-super] # same
        await self._carry(lambda: foreign(source_dir=source_dir, target_dir=target_dir))
        if not GUARDED.get():
            await self._hosting.clear_links(Path(target_dir))

    async def _carry(self, transfer: Callable[[], Awaitable[None]]) -> None:
        await (transfer() if GUARDED.get() else self._hosting.carry(transfer))


def hosted(foreign: type[BaseEnvironment], settings: Settings) -> type[BaseEnvironment]:
    """The class that Harbor makes sandboxes of."""
    own = {"settings": settings, "options_of_server": dict(settings.sandbox_config), "__module__": __name__}
    return type(f"Hosted{foreign.__name__}", (Hosted, foreign), own)
