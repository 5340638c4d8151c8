"""How commands enter a sandbox: one primitive, a byte-exact stream, and what its failures mean."""

import asyncio
from abc import abstractmethod
from collections.abc import Awaitable, Callable
from typing import IO, Any

from harbor.environments.base import BaseEnvironment, ExecResult

from harborrl_agent_server.bounded import finish
from harborrl_agent_server.errors import SANDBOX_FAULTS, SandboxTransportError, SandboxUnusableError, is_host_fault
from harborrl_agent_server.sandboxes import commands
from harborrl_agent_server.sandboxes.standstill import standstill
from harborrl_agent_server.sandboxes.streams import Capture, Sink
from harborrl_agent_server.scope import AGENTS_TIME, CURRENT

OUTPUT_LIMIT = 10 * 1024 * 1024
"""Bytes of one stream of one command that are kept."""

KILL_SECONDS = 10.0


class EnteredSandbox(BaseEnvironment):
    """A Linux sandbox with /bin/sh that a subclass carries one command's bytes into."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.scope = CURRENT.get()

    @abstractmethod
    async def stream(self, argv: list[str], *, stdin: IO[bytes] | None, stdout: Sink, stderr: Sink) -> int:
        """Run `argv` to its end and return its exit code.

        `stdin` is sent whole and then closed. Raises one of `SANDBOX_FAULTS` when the sandbox or the way to it breaks;
        a status that never arrived is never an exit code. Cancelling closes the connection, not the command.
        """

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

        `carries`: files, for as long as such a thing may take. If then no byte has moved for half of that, and the
        sandbox runs other commands, what stood still was the sandbox's `tar`, and not the way to it.
        """
        err, out = Capture(16 * 1024), Counted(stdout or _ignore)
        moved: Callable[[], int] = (lambda: out.size) if stdin is None else stdin.tell
        with standstill(moved, limit_s) as stood:
            try:
                async with asyncio.timeout(limit_s):
                    code = await self.stream(argv, stdin=stdin, stdout=out, stderr=err)
            except TimeoutError as error:
                said = f"no answer from the sandbox within {limit_s:.0f} s to {argv[-1][:80]!r}"
                if carries and stood.is_long and await self._answers():
                    raise SandboxUnusableError(f"{said}, which runs other commands: its tar stood still") from error
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

    async def _faults_noted[Result](self, work: Callable[[], Awaitable[Result]]) -> Result:
        refuse_the_late()
        try:
            return await work()
        except SANDBOX_FAULTS as error:
            self.scope.blame(error)
            raise
        except Exception as error:
            if is_host_fault(error):  # Harbor wraps what a download ends with
                self.scope.blame(error)
            raise


def refuse_the_late() -> None:
    """Raises `RuntimeError` for a task that an agent has left behind: it could touch the grading."""
    time = AGENTS_TIME.get()
    if time is not None and time.is_over:
        raise RuntimeError("the agent's phase is over; no command of it runs any more")


class Counted:
    def __init__(self, sink: Sink) -> None:
        self.size = 0
        self._sink = sink

    def __call__(self, data: bytes) -> None:
        self.size += len(data)
        self._sink(data)


def _ignore(_: bytes) -> None:
    pass
