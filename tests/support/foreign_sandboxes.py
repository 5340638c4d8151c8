"""Environments as others write them: whole by Harbor's interface, and without any of our guarantees."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any, ClassVar, override

from harbor.environments.base import BaseEnvironment, ExecResult

from harborrl_agent_server.sandboxes.local import LocalSandbox
from harborrl_agent_server.scope import TrialScope


class Foreign(LocalSandbox):
    """Namespaces again, and the server knows nothing of them: neither of its faults nor how to end it."""

    living: ClassVar[set[str]] = set()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.asked_for = kwargs.pop("flavour", None)
        super().__init__(*args, **kwargs)
        self.scope.sandboxes.remove(self)
        self.scope = TrialScope(run_id="foreign", provider=self.scope.provider)

    @override
    async def start(self, force_build: bool) -> None:
        await super().start(force_build)
        self.living.add(self.session_id)

    @override
    async def stop(self, delete: bool) -> None:
        await super().stop(delete)
        self.living.discard(self.session_id)


class TimesOutAtStart(Foreign):
    @override
    async def start(self, force_build: bool) -> None:
        raise TimeoutError("the cloud is slow today")


class OwnNames(Foreign):
    """Harbor's own calls would fit it, by position."""

    @override
    async def upload_dir(self, source: Path | str, target_dir: str) -> None:
        await super().upload_dir(source, target_dir)


class Mistaken(Foreign):
    @override
    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        await super().upload_dir(source_dir, target_dir.no_such_thing)  # type: ignore[attr-defined] # the mistake


class DeafAtStart(Foreign):
    """Heeds no cancellation until the test lets it go."""

    let_go: asyncio.Event

    @override
    async def start(self, force_build: bool) -> None:
        while not self.let_go.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await self.let_go.wait()


class StopFails(Foreign):
    """Until the class is told otherwise."""

    fails = True

    @override
    async def stop(self, delete: bool) -> None:
        if self.fails:
            raise RuntimeError("the cloud has forgotten the sandbox")
        await super().stop(delete)


class DownloadFails(Foreign):
    @override
    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        raise TimeoutError("half of it arrived")


class NeverTimesOut(Foreign):
    @override
    async def exec(self, command: str, *args: Any, **kwargs: Any) -> ExecResult:
        return await super().exec(command, *args, **kwargs | {"timeout_sec": None})


class Dies(Foreign):
    """With the command that says so, and takes it for a success."""

    @override
    async def exec(self, command: str, *args: Any, **kwargs: Any) -> ExecResult:
        if "die-now" in command:
            await super().stop(delete=True)
            return ExecResult(stdout="", stderr="", return_code=0)
        return await super().exec(command, *args, **kwargs)


class HalfWritten(BaseEnvironment):
    """Lacks most of it."""


class Unprepared(Foreign):
    @classmethod
    @override
    def preflight(cls, kwargs: dict[str, Any] | None = None) -> None:
        raise SystemExit("CLOUD_TOKEN is not set.\nSet it.")


NOT_A_CLASS = 7
