"""What our sandboxes have in common: Harbor's environment interface over one primitive, a byte-exact command stream."""

import asyncio
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, override
from uuid import uuid4

from harbor.environments.base import ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities, EnvironmentResourceCapabilities

from harborrl_agent_server.errors import SandboxStartError, SandboxUnusableError
from harborrl_agent_server.sandboxes import commands
from harborrl_agent_server.sandboxes.carrying import CarryingSandbox
from harborrl_agent_server.sandboxes.entered import KILL_SECONDS
from harborrl_agent_server.spending import SAY_SECONDS

MORE = "raise --environment-start-timeout (job: environmentStartSeconds)"


class ShellSandbox(CarryingSandbox):
    """A Linux sandbox with /bin/sh. Commands run as root unless the task names a user.

    A subclass boots and removes it and carries one command's bytes; everything else is here.
    """

    left = False
    """Whether the last `destroy` failed, or still goes on; the next one tries again."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._stopped = False
        self.is_verifiers_own = bool(self.scope.sandboxes)
        self.scope.sandboxes.append(self)

    @property
    @override
    def capabilities(self) -> EnvironmentCapabilities:
        return EnvironmentCapabilities()

    @classmethod
    @override
    def resource_capabilities(cls) -> EnvironmentResourceCapabilities:
        return EnvironmentResourceCapabilities(
            cpu_limit=True, cpu_request=True, memory_limit=True, memory_request=True, fractional_cpus=True
        )

    @override
    def _validate_definition(self) -> None:
        """Whether an image can be had is the subclass's matter; a Dockerfile is never built here."""

    @abstractmethod
    async def boot(self) -> None:
        """Bring the sandbox up; raises `SandboxStartError`."""

    @abstractmethod
    async def destroy(self) -> None:
        """Remove the sandbox; bounded, never raises, harmless when repeated or when nothing was booted."""

    @override
    async def start(self, force_build: bool) -> None:
        async def boot() -> None:
            limit_s = self.scope.start_s(self)
            if limit_s <= 0:
                raise SandboxStartError("NoTimeLeft", f"the trial's phases before it took all of their time; {MORE}")
            try:
                async with asyncio.timeout(limit_s + SAY_SECONDS):
                    await self.boot()
                    await self.prepare()
                    await self._upload_environment_dir_after_start()
            except TimeoutError as error:
                raise SandboxStartError("NotInTime", f"not ready within {limit_s:.0f} s; {MORE}") from error

        await self._faults_noted(boot)
        self.scope.ready.add(self)

    def folders(self) -> str:
        """Shell text that makes the folders which Harbor and the task count on, and fails without the task's users."""
        users = self.scope.users.verifiers if self.is_verifiers_own else self.scope.users.agents
        return commands.prepare(self.task_env_config.workdir, self._mount_targets(writable_only=True), users)

    async def prepare(self) -> None:
        """Run `folders` in the booted sandbox; raises `SandboxStartError` for an image in which that cannot be."""
        try:
            await self._plain([commands.SHELL, "-c", self.folders()], limit_s=KILL_SECONDS)
        except (RuntimeError, SandboxUnusableError) as error:
            raise SandboxStartError("ImageUnusable", f"{error}; {commands.NEEDS}") from error

    @override
    async def stop(self, delete: bool) -> None:
        self._stopped = True
        await self.destroy()

    @abstractmethod
    def agent_begins(self) -> None:
        """As `scope.Sandbox` says."""

    @abstractmethod
    def agent_ended(self, folders: Sequence[str]) -> None:
        """As `scope.Sandbox` says."""

    async def quiesce(self) -> None:
        """End every process but the sandbox's first, and empty /tests, before the verifier's files arrive.

        A task whose verifier has a sandbox of its own has the agent's stopped by then.
        """
        if self._stopped:
            return
        await self._faults_noted(lambda: self._plain([commands.SHELL, "-c", commands.QUIESCE], limit_s=KILL_SECONDS))

    @override
    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: float | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Run a shell command. One that outlives `timeout_sec` is killed and returns 124, as Harbor expects."""
        return await self._command(command, cwd, env, user, lambda argv, pid: self._run(argv, pid, timeout_sec))

    async def _command(
        self,
        command: str,
        cwd: str | None,
        env: dict[str, str] | None,
        user: str | int | None,
        carry_out: Callable[[list[str], str], Awaitable[ExecResult]],
    ) -> ExecResult:
        """What `carry_out` makes of the command's arguments and the file for its process id."""
        token = f"/tmp/.harborrl-{uuid4().hex[:12]}"  # noqa: S108 - inside the sandbox
        directory = cwd or self.task_env_config.workdir
        merged, runs_as = self._merge_env(env), self._resolve_user(user)

        async def run() -> ExecResult:
            text = commands.script(commands.inline(command), cwd=directory, env=merged, user=runs_as)
            if not commands.fits_argument(text):
                await self._write(f"{token}.sh", command.encode(errors="replace"))
                how = commands.from_file(f"{token}.sh")
                text = commands.script(how, cwd=directory, env=merged, user=runs_as)
            if not commands.fits_argument(text):  # for the variables alone
                await self._write(f"{token}.env", text.encode(errors="replace"))
                return await carry_out([commands.SHELL, f"{token}.env"], f"{token}.pid")
            return await carry_out([commands.SHELL, "-c", text], f"{token}.pid")

        return await self._faults_noted(run)
