"""Fewer commands a trial. In a pod each is a connection through API server and kubelet.

Once the server says that the agent is done, what Harbor asks for one by one goes together: its downloads; what comes
before the tests; the tests and the download behind them. What is not recognised, or fails together, is done singly, as
any sandbox of Harbor's does it.
"""

import asyncio
import io
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, override

from harbor.environments.base import ExecResult
from harbor.models.trial.paths import EnvironmentPaths

from harborrl_agent_server.bounded import finish
from harborrl_agent_server.errors import SANDBOX_FAULTS, SandboxTransportError, SandboxUnusableError
from harborrl_agent_server.sandboxes import archives, fetching
from harborrl_agent_server.sandboxes.base import ShellSandbox
from harborrl_agent_server.sandboxes.entered import KILL_SECONDS, OUTPUT_LIMIT, refuse_the_late
from harborrl_agent_server.sandboxes.seals import Seal
from harborrl_agent_server.sandboxes.staging import Stage, Upload
from harborrl_agent_server.sandboxes.streams import Capture, FileSink, TransferTooLargeError
from harborrl_agent_server.threads import in_thread

PATHS = EnvironmentPaths()

AGENT_LOGS, TESTS, VERIFIER_LOGS = (str(path) for path in (PATHS.agent_dir, PATHS.tests_dir, PATHS.verifier_dir))

REMOVES_REWARDS = f"rm -f -- {PATHS.reward_text_path} {PATHS.reward_json_path}"
MAKES_EXECUTABLE = re.compile(rf"chmod \+x {TESTS}/[\w./-]+")
RUNS_TESTS = re.compile(rf"\(.*\) > {VERIFIER_LOGS}/test-stdout\.txt 2>&1", re.DOTALL)
"""As Harbor's Verifier says it; another version may say it otherwise, and then has more commands."""

FETCH_SECONDS = 60.0
"""Of what is small, and comes singly when it did not come together."""


class JoiningSandbox(ShellSandbox):
    """A sandbox that knows what comes next."""

    fetch_s = FETCH_SECONDS

    quiesces_with_others = True
    """Whether a command that ends every process can go on afterwards."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._joins = self.is_verifiers_own
        self._stage = Stage()
        self._fetched = fetching.Fetched()

    @override
    def agent_begins(self) -> None:
        """Its commands are its own, whatever they look like."""
        self._joins = False
        self._fetched.forget()

    @override
    def agent_ended(self, folders: Sequence[str]) -> None:
        """`folders` will be asked for next."""
        self._joins = True
        self._fetched.forget()
        self._fetched.wanted = list(folders)

    @override
    async def stop(self, delete: bool) -> None:
        self._stage.close()
        self._stage = Stage()
        await super().stop(delete)

    @override
    async def quiesce(self) -> None:
        if self._stopped:
            return
        if self._stage.is_for_tests:
            await self.settle()
        self._fetched.forget()
        if not (self._joins and self.quiesces_with_others):
            await self.settle()
            await super().quiesce()
            return
        self._stage.quiesces = True

    @override
    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: float | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        is_plain = (cwd, env, timeout_sec, user) == (None, None, None, "root")
        if self._joins and is_plain and command == REMOVES_REWARDS:
            self._stage.removes_rewards = True
        elif self._joins and is_plain and MAKES_EXECUTABLE.fullmatch(command):
            self._stage.behind.append(command)
        else:
            await self.settle()
            self._fetched.forget()
            if self._joins and timeout_sec is None and RUNS_TESTS.fullmatch(command):
                return await self._command(command, cwd, env, user, self._run_tests)
            return await super().exec(command, cwd, env, timeout_sec, user)
        return ExecResult(stdout="", stderr="", return_code=0)

    async def _run_tests(self, argv: list[str], pid_file: str) -> ExecResult:
        """Their logs come with the end of the command, whose own outputs are empty: they are in the logs."""
        output, err = io.BytesIO(), Capture(OUTPUT_LIMIT)
        seal, sink = Seal(err), FileSink(output, fetching.FETCH_LIMIT)
        words = fetching.run_and_fetch(argv, pid_file, mark=seal.mark, folder=VERIFIER_LOGS)
        try:
            code = await self.stream(words, stdin=None, stdout=sink, stderr=seal)
        except asyncio.CancelledError:
            await finish(self._kill(pid_file), KILL_SECONDS)
            raise
        except SandboxTransportError:
            if seal.code is None:
                raise
            code = seal.code  # the tests ended; their logs are another try's matter
        seal.close()
        await in_thread(self._fetched.add, [VERIFIER_LOGS], output.getvalue())
        return ExecResult(stdout="", stderr=err.text(), return_code=code if seal.code is None else seal.code)

    @override
    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        if self._joins and target_dir in {AGENT_LOGS, TESTS}:
            await self._stage_upload(Path(source_dir), target_dir)
            self._fetched.forget_within(target_dir)
            return
        await self.settle()
        self._fetched.forget()
        await super().upload_dir(source_dir, target_dir)

    async def _stage_upload(self, source: Path, target: str) -> None:
        refuse_the_late()
        upload = Upload(target, fatal=target == TESTS)
        try:
            await in_thread(upload.pack, source)
        except BaseException:
            upload.file.close()
            raise
        self._stage.uploads.append(upload)

    @override
    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        await self.settle()
        self._fetched.forget()
        await super().upload_file(source_path, target_path)

    @override
    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        await self._settle_for(source_path)
        await super().download_file(source_path, target_path)

    @override
    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        await self._settle_for(source_dir)
        await self._fetch_with(source_dir)
        archive = self._fetched.take(source_dir)
        if archive is None:
            await super().download_dir(source_dir, target_dir)
            return
        refused = await in_thread(archives.unpack, io.BytesIO(archive), Path(target_dir), limit=self.transfer_limit)
        self._warn_of(source_dir, refused)

    @override
    async def is_dir(self, path: str, user: str | int | None = None) -> bool:
        if user == "root":
            await self._settle_for(path)
            await self._fetch_with(path)
            if (known := self._fetched.is_folder(path)) is not None:
                return known
        return await super().is_dir(path, user)

    async def _fetch_with(self, path: str) -> None:
        """Fetch all that is wanted if `path` is of it. What fails is asked for singly, and fails there."""
        wanted = self._fetched.wanted
        if path not in wanted or len(wanted) == 1:
            return
        self._fetched.wanted = []
        output = io.BytesIO()
        sink = FileSink(output, fetching.FETCH_LIMIT)
        try:
            await self._plain(fetching.fetch(wanted), limit_s=self.fetch_s, stdout=sink, carries=True)
        except SandboxUnusableError:
            # Singly as long as ever for each folder, and the trial's budgets would be over.
            self.transfer_s = min(self.transfer_s, KILL_SECONDS)
            return
        except (*SANDBOX_FAULTS, TransferTooLargeError, RuntimeError):
            return
        await in_thread(self._fetched.add, wanted, output.getvalue())

    async def _settle_for(self, path: str) -> None:
        refuse_the_late()
        if any(fetching.overlap(path, upload.target) for upload in self._stage.uploads):
            await self.settle()

    async def settle(self) -> None:
        """Carry out what is staged."""
        refuse_the_late()
        stage, self._stage = self._stage, Stage()
        if not stage:
            return
        try:
            await self._faults_noted(lambda: self._settled(stage))
        finally:
            stage.close()

    async def _settled(self, stage: Stage) -> None:
        with tempfile.TemporaryFile() as payload:
            argv = await in_thread(stage.joined, payload)

            async def send() -> None:
                payload.seek(0)
                if stage.uploads:
                    await self._transfer(argv, stdin=payload)
                else:
                    await self._plain(argv, limit_s=KILL_SECONDS)

            try:
                await self._twice(send)
            except RuntimeError:
                await self._singly(stage)

    async def _singly(self, stage: Stage) -> None:
        for step in stage.steps():
            try:
                if step.stdin is not None:
                    await self._transfer(step.argv, stdin=step.stdin)
                else:
                    await self._plain(step.argv, limit_s=KILL_SECONDS)
            except RuntimeError:
                if step.fatal:
                    raise
                self.logger.exception("not done in the sandbox before grading: %s", step.argv[-1][:200])
