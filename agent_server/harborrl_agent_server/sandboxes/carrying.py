"""Files into a sandbox and out of it: packed beside the event loop, bounded in size and time, carried twice at most."""

import shlex
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path, PurePosixPath
from typing import IO, override

from harborrl_agent_server.errors import SandboxTransportError
from harborrl_agent_server.sandboxes import archives, commands
from harborrl_agent_server.sandboxes.entered import EnteredSandbox
from harborrl_agent_server.sandboxes.streams import FileSink, Sink, TransferTooLargeError
from harborrl_agent_server.threads import in_thread

TRANSFER_LIMIT = 512 * 1024 * 1024
"""Bytes of one upload or download."""

TRANSFER_SECONDS = 300.0
"""Harbor sets no limit of its own, and a transfer that hangs would hold the trial's slot for ever."""


class CarryingSandbox(EnteredSandbox):
    transfer_limit = TRANSFER_LIMIT

    transfer_s = TRANSFER_SECONDS
    """For one transfer. Where it stood still for half of that and the sandbox answers, the agent has seen to it."""

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
