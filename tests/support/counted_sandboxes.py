"""A local sandbox that remembers what entered it, one that takes little, and one whose way breaks behind the tests."""

from typing import IO, override

from harborrl_agent_server.errors import SandboxTransportError
from harborrl_agent_server.sandboxes.fetching import RUN_AND_FETCH
from harborrl_agent_server.sandboxes.local import LocalSandbox
from harborrl_agent_server.sandboxes.streams import Sink
from support.small_volume import fill


class Counted(LocalSandbox):
    entered: list[list[str]] = []  # noqa: RUF012 - of the class on purpose; each test begins with none

    @override
    async def stream(self, argv: list[str], *, stdin: IO[bytes] | None, stdout: Sink, stderr: Sink) -> int:
        Counted.entered.append(argv)
        return await super().stream(argv, stdin=stdin, stdout=stdout, stderr=stderr)


class TakesLittle(Counted):
    transfer_limit = 4 * 1024 * 1024


class FillsTheVolume(LocalSandbox):
    """Takes what is left of the volume of the trials when it goes."""

    @override
    async def stop(self, delete: bool) -> None:
        await super().stop(delete)
        fill(self.trial_paths.trial_dir.parent)


class BreaksBehindTests(Counted):
    @override
    async def stream(self, argv: list[str], *, stdin: IO[bytes] | None, stdout: Sink, stderr: Sink) -> int:
        if RUN_AND_FETCH not in argv:
            return await super().stream(argv, stdin=stdin, stdout=stdout, stderr=stderr)
        await super().stream(argv, stdin=stdin, stdout=lambda _: None, stderr=stderr)
        raise SandboxTransportError("the API server was started anew")
