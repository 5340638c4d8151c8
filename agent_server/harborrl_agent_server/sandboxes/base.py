"""What our sandboxes have in common: Harbor's environment interface over one primitive, a byte-exact command stream."""

import asyncio
import os
import shlex
import tempfile
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, Any, override
from uuid import uuid4

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities, EnvironmentResourceCapabilities

from harborrl_agent_server.bounded import finish
from harborrl_agent_server.errors import (
    SANDBOX_FAULTS,
    SandboxStartError,
    SandboxTransportError,
    SandboxUnusableError,
    is_host_fault,
)
from harborrl_agent_server.sandboxes import archives, commands
from harborrl_agent_server.sandboxes.streams import CHUNK, Capture, FileSink, Sink, TransferTooLargeError
from harborrl_agent_server.scope import CURRENT
from harborrl_agent_server.spending import SAY_SECONDS
from harborrl_agent_server.threads import in_thread

OUTPUT_LIMIT = 10 * 1024 * 1024
"""Bytes of one stream of one command that are kept."""

TRANSFER_LIMIT = 512 * 1024 * 1024
"""Bytes of one upload or download."""

TRANSFER_SECONDS = 300.0
"""Harbor sets no limit of its own, and a transfer that hangs would hold the trial's slot for ever."""

KILL_SECONDS = 10.0

MORE = "raise --environment-start-timeout (job: environmentStartSeconds)"


class ShellSandbox(BaseEnvironment):
    """A Linux sandbox with /bin/sh. Commands run as root unless the task names a user.

    A subclass boots and removes it and carries one command's bytes; everything else is here.
    """

    transfer_limit = TRANSFER_LIMIT

    transfer_s = TRANSFER_SECONDS
    """A transfer that stands still so long in a sandbox which answers has been seen to by the agent."""

    left = False
    """Whether the last `destroy` failed, or still goes on; the next one tries again."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._stopped = False
        self.scope = CURRENT.get()
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

    @abstractmethod
    async def stream(self, argv: list[str], *, stdin: IO[bytes] | None, stdout: Sink, stderr: Sink) -> int:
        """Run `argv` to its end and return its exit code.

        `stdin` is sent whole and then closed. Raises one of `SANDBOX_FAULTS` when the sandbox or the way to it breaks;
        a status that never arrived is never an exit code. Cancelling closes the connection, not the command.
        """

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

    async def _run(self, argv: list[str], pid_file: str, timeout_sec: float | None) -> ExecResult:
        out, err = Capture(OUTPUT_LIMIT), Capture(OUTPUT_LIMIT)
        try:
            async with asyncio.timeout(timeout_sec):
                code = await self.stream(commands.supervised(argv, pid_file), stdin=None, stdout=out, stderr=err)
        except TimeoutError:
            await finish(self._kill(pid_file), KILL_SECONDS)
            code = 124
        except asyncio.CancelledError:
            await finish(self._kill(pid_file), KILL_SECONDS)
            raise
        return ExecResult(stdout=out.text(), stderr=err.text(), return_code=code)

    async def _kill(self, pid_file: str) -> None:
        await self.stream(commands.kill(pid_file), stdin=None, stdout=_ignore, stderr=_ignore)

    async def _plain(
        self,
        argv: list[str],
        *,
        limit_s: float,
        stdin: IO[bytes] | None = None,
        stdout: Sink | None = None,
        excused: Callable[[int, str], bool] = lambda _code, _said: False,
        carries: bool = False,
    ) -> None:
        """Run one of our own commands: an exit code but 0 is an error that shows what it said, unless it is excused.

        `carries`: files, for as long as such a thing may take; then what stands still is the sandbox's `tar`.
        """
        err, out = Capture(16 * 1024), Counted(stdout or _ignore)
        try:
            async with asyncio.timeout(limit_s):
                code = await self.stream(argv, stdin=stdin, stdout=out, stderr=err)
        except TimeoutError as error:
            said = f"no answer from the sandbox within {limit_s:.0f} s to {argv[-1][:80]!r}"
            stands_still = out.size == 0 if stdin is None else is_at_end(stdin)
            if carries and stands_still and await self._answers():
                raise SandboxUnusableError(f"{said}, which runs other commands: it has no tar any more") from error
            raise SandboxTransportError(said) from error
        if code and not excused(code, err.text()):
            raise RuntimeError(
                f"{argv[-1][:200]!r} failed in the sandbox with exit code {code}: {err.text().strip()[-500:]}"
            )

    async def _answers(self) -> bool:
        """Whether the way to the sandbox is open, so that what hangs there is its own."""
        try:
            async with asyncio.timeout(KILL_SECONDS):
                return await self.stream([commands.SHELL, "-c", ":"], stdin=None, stdout=_ignore, stderr=_ignore) == 0
        except (TimeoutError, *SANDBOX_FAULTS):
            return False

    async def _transfer(
        self,
        argv: list[str],
        *,
        stdin: IO[bytes] | None = None,
        stdout: Sink | None = None,
        excused: Callable[[int, str], bool] = lambda _code, _said: False,
    ) -> None:
        limit_s = self.transfer_s
        await self._plain(argv, limit_s=limit_s, stdin=stdin, stdout=stdout, excused=excused, carries=True)

    async def _write(self, path: str, content: bytes) -> None:
        with tempfile.TemporaryFile() as file:
            file.write(content)
            file.seek(0)
            await self._transfer([commands.SHELL, "-c", f"cat >{shlex.quote(path)}"], stdin=file)

    @override
    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        target = PurePosixPath(target_path)
        await self._upload(lambda file: archives.pack_file(Path(source_path), target.name, file), str(target.parent))

    @override
    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        await self._upload(lambda file: archives.pack_directory(Path(source_dir), file), target_dir)

    async def _upload(self, pack: Callable[[IO[bytes]], None], target_dir: str) -> None:
        quoted = shlex.quote(target_dir)
        argv = [commands.SHELL, "-c", f"mkdir -p {quoted} && exec tar -xf - -C {quoted}"]
        with tempfile.TemporaryFile() as file:
            await in_thread(pack, file)

            async def send() -> None:
                file.seek(0)
                await self._transfer(argv, stdin=file)

            await self._faults_noted(lambda: self._twice(send))

    @override
    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        with tempfile.TemporaryFile() as file:
            await self._download([commands.SHELL, "-c", f"exec cat {shlex.quote(source_path)}"], file)
            await in_thread(archives.write_file, file, Path(target_path))

    @override
    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        """Of a verifier's logs that are too large its reward: an output without measure is no verdict."""
        try:
            await self._download_packed(source_dir, commands.PACK, Path(target_dir))
        except TransferTooLargeError as error:
            if source_dir != commands.VERDICT:
                raise
            await self._download_packed(source_dir, commands.PACK_REWARDS, Path(target_dir))
            self.scope.warnings.append(f"{source_dir}: the reward alone was kept, for {error}")

    async def _download_packed(self, source_dir: str, pack: str, target: Path) -> None:
        with tempfile.TemporaryFile() as file:
            await self._download([commands.SHELL, "-c", pack, "harborrl", source_dir], file)
            refused = await in_thread(archives.unpack, file, target, limit=self.transfer_limit)
        self._warn_of(source_dir, refused)

    def _warn_of(self, source_dir: str, refused: list[str]) -> None:
        if refused:
            self.scope.warnings.append(f"{source_dir}: left out unsafe names {', '.join(map(repr, refused[:5]))}")

    async def _download(self, argv: list[str], file: IO[bytes]) -> None:
        async def receive() -> None:
            file.seek(0)
            file.truncate()
            sink = FileSink(file, self.transfer_limit)
            await self._transfer(argv, stdout=sink, excused=archives.only_changed)

        await self._faults_noted(lambda: self._twice(receive))
        file.seek(0)

    async def _twice(self, transfer: Callable[[], Awaitable[None]]) -> None:
        """A transfer can be repeated; an API server that restarts breaks connections while the pod lives on."""
        try:
            await transfer()
        except SandboxTransportError:
            await transfer()

    async def _faults_noted[Result](self, work: Callable[[], Awaitable[Result]]) -> Result:
        try:
            return await work()
        except SANDBOX_FAULTS as error:
            self.scope.blame(error)
            raise
        except Exception as error:
            if is_host_fault(error):  # Harbor wraps what a download ends with
                self.scope.blame(error)
            raise


class Counted:
    def __init__(self, sink: Sink) -> None:
        self.size = 0
        self._sink = sink

    def __call__(self, data: bytes) -> None:
        self.size += len(data)
        self._sink(data)


def is_at_end(file: IO[bytes]) -> bool:
    """Whether all of it was sent."""
    return file.tell() == file.seek(0, os.SEEK_END)


async def chunks(file: IO[bytes]) -> AsyncIterator[bytes]:
    while data := file.read(CHUNK):
        yield data


def _ignore(_: bytes) -> None:
    pass
