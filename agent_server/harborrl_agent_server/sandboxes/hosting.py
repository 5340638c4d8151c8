"""Calls of a foreign environment under our rules: limits, names of errors, the end of commands and of the sandbox."""

import asyncio
import shlex
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any
from uuid import uuid4

from harbor.environments.base import ExecResult

from harborrl_agent_server.bounded import finish, keep
from harborrl_agent_server.errors import (
    SANDBOX_FAULTS,
    SandboxLostError,
    SandboxStartError,
    SandboxTransportError,
)
from harborrl_agent_server.sandboxes import commands
from harborrl_agent_server.sandboxes.archives import remove_ways_out
from harborrl_agent_server.sandboxes.carrying import TRANSFER_SECONDS
from harborrl_agent_server.sandboxes.entered import KILL_SECONDS
from harborrl_agent_server.sandboxes.seals import Seal
from harborrl_agent_server.scope import TrialScope
from harborrl_agent_server.threads import in_thread

STOP_SECONDS = 50.0
"""For one try to stop it; then the trial is answered and the reaper goes on."""

HEED_SECONDS = 2.0
"""For a call that was cancelled to end; one that does not is left behind."""

LATE_SECONDS = 20.0
"""For a class to say that a command's time is over."""

PROBE_SECONDS = 20.0

KILLED = 137

OWN_MISTAKES = (TypeError, AttributeError, NameError, NotImplementedError)
"""Of the class's code: nothing that a policy or a verifier does in a sandbox ends in one of them."""

GUARDED: ContextVar[bool] = ContextVar("harborrl_guarded", default=False)
"""Within a call that is guarded already."""


class Hosting:
    """One foreign sandbox. `raw` is its class's own view of it."""

    left = False

    def __init__(self, raw: Any, scope: TrialScope, prepare: str) -> None:
        self._raw = raw
        self._prepare = prepare
        """Makes the folders that Harbor and the task count on; not every class does before it enters them."""
        self._scope = scope
        self._begun = False
        self._grading = False
        self._stopped = False
        self._stopping: asyncio.Task[Any] | None = None
        self._present = ""
        """The processes that were there before any agent, as SURVEY tells them."""

    async def start(self, force_build: bool) -> None:
        limit_s = self._scope.start_s(self)
        if limit_s <= 0:
            raise self._noted(SandboxStartError("NoTimeLeft", "the trial's phases before it took all of their time"))
        self._begun = True
        try:
            await within(limit_s, lambda: self._raw.start(force_build=force_build))
            found = await self._own(f"{self._prepare}; {commands.SURVEY}", PROBE_SECONDS)
        except Exception as error:  # the class raises what it likes
            raise self._noted(SandboxStartError("NotReady", said(error))) from error
        self._present = " ".join((found.stdout or "").split())
        if not self._present:
            raise self._noted(SandboxStartError("ImageUnusable", "its /proc cannot be read by /bin/sh"))
        self._scope.ready.add(self)

    async def exec(self, command: str, *, timeout_sec: float | None, **how: Any) -> ExecResult:
        """Run a command; raises one of `SANDBOX_FAULTS` where the class raises anything."""
        token = f"/tmp/.harborrl-{uuid4().hex[:12]}"  # noqa: S108 - inside the sandbox
        seal = Seal(lambda _: None)
        run = commands.inline(command)
        if not commands.fits_argument(run):
            await self.carry(lambda: self._write(command, f"{token}.sh"))
            run = commands.from_file(f"{token}.sh")
        script = commands.script(run, cwd=None, env=None, user=None)
        argv = seal.argv(commands.supervised([commands.SHELL, "-c", script], f"{token}.pid"))
        loop = asyncio.get_running_loop()
        begun = loop.time()
        try:
            limit = None if timeout_sec is None else timeout_sec + LATE_SECONDS
            seconds = None if timeout_sec is None else max(round(timeout_sec), 1)
            result = await within(limit, lambda: self._raw.exec(shlex.join(argv), timeout_sec=seconds, **how))
        except asyncio.CancelledError:
            await finish(self._kill(f"{token}.pid"), KILL_SECONDS)
            raise
        except Exception as error:  # noqa: BLE001 - the class raises what it likes
            late = timeout_sec is not None and loop.time() - begun >= timeout_sec
            if late and await self._killed(f"{token}.pid"):
                return ExecResult(stdout="", stderr="", return_code=124)
            return await self._broken_off(error)
        return await self._told(result, seal, f"{token}.pid")

    async def _broken_off(self, error: Exception) -> ExecResult:
        """While an agent acts, it may have ended the way to its own command: a living sandbox makes it a failed one."""
        if self._grading or isinstance(error, OWN_MISTAKES):
            raise self._noted(SandboxTransportError(f"exec: {said(error)}")) from error
        await self._alive()
        self._scope.warnings.append(f"a command broke off: {said(error)}")
        return ExecResult(stdout="", stderr=said(error), return_code=KILLED)

    async def _told(self, result: ExecResult, seal: Seal, pid_file: str) -> ExecResult:
        """The class's answer with the code that the sandbox told; without one, only a living sandbox is believed."""
        out, err = seal.taken_out(result.stdout), seal.taken_out(result.stderr)
        if seal.code is None:
            if result.return_code == 124:
                await finish(self._kill(pid_file), KILL_SECONDS)
            else:
                await self._alive()
        code = result.return_code if seal.code is None else seal.code
        return ExecResult(stdout=out, stderr=err, return_code=code)

    async def carry(self, transfer: Callable[[], Awaitable[None]]) -> None:
        """A transfer that fails in a living sandbox is the task's or the policy's trouble: a plain RuntimeError."""
        try:
            await within(TRANSFER_SECONDS, transfer)
        except SANDBOX_FAULTS as error:
            raise self._noted(error) from error
        except OWN_MISTAKES as error:
            raise self._noted(SandboxTransportError(f"transfer: {said(error)}")) from error
        except Exception as error:  # the class raises what it likes
            await self._alive()
            raise RuntimeError(said(error)) from error

    async def clear_links(self, folder: Path) -> None:
        refused = await in_thread(remove_ways_out, folder)
        if refused:
            self._scope.warnings.append(f"left out unsafe names {', '.join(map(repr, refused[:5]))}")

    def agent_begins(self) -> None:
        """Harbor's calls go to the class as they come."""

    def agent_ended(self, folders: Sequence[str]) -> None:
        """As above."""

    async def quiesce(self) -> None:
        """End every process that came after the start, and empty /tests. One that was stopped has neither."""
        if self._stopping is not None:
            return
        self._grading = True
        words = shlex.join([commands.SHELL, "-c", commands.QUIESCE_OTHERS, "harborrl", self._present])
        try:
            result = await self._own(words, 2 * KILL_SECONDS)
        except Exception as error:  # the class raises what it likes
            raise self._noted(SandboxTransportError(f"before grading: {said(error)}")) from error
        if result.return_code:
            raise self._noted(SandboxTransportError(f"the agent's processes stay: {(result.stderr or '')[-300:]}"))

    async def destroy(self) -> None:
        """One try to stop it, joined by whoever comes meanwhile; the next call tries again if it failed."""
        if not self._begun or self._stopped:
            return
        self.left = True
        if self._stopping is None or self._stopping.done():
            self._stopping = keep(guarded(lambda: self._raw.stop(delete=True)))
        await asyncio.wait({self._stopping}, timeout=STOP_SECONDS)
        if not self._stopping.done():
            return
        if self._stopping.cancelled() or (error := self._stopping.exception()) is not None:
            why = "cancelled" if self._stopping.cancelled() else said(error)
            self._scope.warnings.append(f"the sandbox was not stopped: {why}")
            return
        self._stopped, self.left = True, False

    async def _own(self, command: str, limit_s: float) -> ExecResult:
        """A command of ours, whoever the task's user is and wherever he works."""
        result: ExecResult = await within(limit_s, lambda: self._raw.exec(command, cwd="/", user="root"))
        return result

    async def _write(self, content: str, path: str) -> None:
        with tempfile.NamedTemporaryFile() as file:
            file.write(content.encode(errors="replace"))
            file.flush()
            await self._raw.upload_file(source_path=Path(file.name), target_path=path)

    async def _kill(self, pid_file: str) -> None:
        await self._own(shlex.join(commands.kill(pid_file)), KILL_SECONDS)

    async def _killed(self, pid_file: str) -> bool:
        """Whether a command that took too long could be ended: then it was the command, not the way to it."""
        try:
            await self._kill(pid_file)
        except Exception:  # noqa: BLE001 - the answer is no
            return False
        return True

    async def _alive(self) -> None:
        seal = Seal(lambda _: None)
        try:
            answer = await self._own(shlex.join(seal.argv(["true"])), PROBE_SECONDS)
        except Exception as error:  # the class raises what it likes
            raise self._noted(SandboxLostError(f"the sandbox answers no more: {said(error)}")) from error
        for text in (answer.stdout, answer.stderr):
            seal.taken_out(text)
        if seal.code is None:
            raise self._noted(SandboxLostError(f"the sandbox answers no more (exit code {answer.return_code})"))

    def _noted[Fault: Exception](self, error: Fault) -> Fault:
        self._scope.blame(error)
        return error


async def guarded[Result](call: Callable[[], Awaitable[Result]]) -> Result:
    GUARDED.set(True)
    return await call()


async def within[Result](limit_s: float | None, call: Callable[[], Awaitable[Result]]) -> Result:
    """The result of a call that may neither end nor heed a cancellation: then it is left behind.

    Raises what the call raises, and `SandboxTransportError` when its time is over.
    """
    task = keep(guarded(call))
    try:
        await asyncio.wait({task}, timeout=limit_s)
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait({task}, timeout=HEED_SECONDS)
        raise
    if not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=HEED_SECONDS)
        raise SandboxTransportError(f"no answer from the sandbox's class within {limit_s:.0f} s")
    if task.cancelled():
        raise SandboxTransportError("the sandbox's class gave the call up")
    result: Result = task.result()
    return result


def said(error: BaseException | None) -> str:
    return f"{type(error).__name__}: {error}"[:500]
