"""Local sandboxes that break in one place, as real ones do."""

import asyncio
from typing import override

from harborrl_agent_server.errors import SandboxLostError, SandboxResourceError, SandboxStartError
from harborrl_agent_server.sandboxes.local import LocalSandbox


class NeverStarts(LocalSandbox):
    @override
    async def boot(self) -> None:
        raise SandboxStartError("ImagePullFailed", "pull access denied for nowhere/nothing")


class WithoutTar(LocalSandbox):
    @override
    async def boot(self) -> None:
        await super().boot()
        await self._plain(["/bin/sh", "-c", "rm -f /bin/tar /usr/bin/tar"], limit_s=10)
        self._is_prepared = False


class WithoutTmux(LocalSandbox):
    @override
    async def boot(self) -> None:
        await super().boot()
        await self._plain(["/bin/sh", "-c", "rm -f /usr/bin/tmux /usr/local/bin/tmux"], limit_s=10)


class TmuxInBundle(LocalSandbox):
    """Its image has no tmux; the tools bundle is mounted."""

    @override
    async def boot(self) -> None:
        await super().boot()
        move = "mkdir -p /opt/harborrl-tools/bin && mv $(command -v tmux) /opt/harborrl-tools/bin/tmux"
        await self._plain(["/bin/sh", "-c", move], limit_s=10)


class StopRaises(LocalSandbox):
    @override
    async def stop(self, delete: bool) -> None:
        await super().stop(delete)
        raise RuntimeError("the daemon does not answer")


class StopHangs(LocalSandbox):
    """Harbor's way to end it never returns; ours still works."""

    @override
    async def stop(self, delete: bool) -> None:
        await asyncio.Event().wait()


class LostDuringCommand(LocalSandbox):
    @override
    async def exec(self, command: str, *args: object, **kwargs: object) -> object:  # type: ignore[override] # passes all on
        if "lose-me" in command:
            error = SandboxLostError("node gone")
            self.scope.blame(error)
            raise error
        return await super().exec(command, *args, **kwargs)  # type: ignore[arg-type] # passes all on


class OutOfMemory(LocalSandbox):
    @override
    async def exec(self, command: str, *args: object, **kwargs: object) -> object:  # type: ignore[override] # passes all on
        if "eat" in command:
            error = SandboxResourceError("OOMKilled")
            self.scope.blame(error)
            raise error
        return await super().exec(command, *args, **kwargs)  # type: ignore[arg-type] # passes all on


class Undeletable(LocalSandbox):
    """While the class says so, nothing removes it: an API server that is away, say."""

    stuck = True

    @override
    async def destroy(self) -> None:
        self.left = self.stuck
        if not self.left:
            await super().destroy()


class NeverReady(LocalSandbox):
    """Its start goes on until somebody ends it."""

    @override
    async def boot(self) -> None:
        await asyncio.Event().wait()


class Alive(LocalSandbox):
    """Counts those that live at the same time."""

    now = 0
    peak = 0
    _counted = False

    @override
    async def boot(self) -> None:
        Alive.now, self._counted = Alive.now + 1, True
        Alive.peak = max(Alive.peak, Alive.now)
        await super().boot()

    @override
    async def destroy(self) -> None:
        await super().destroy()
        if self._counted:
            Alive.now, self._counted = Alive.now - 1, False


class HeldAtStart(LocalSandbox):
    """Its start waits until the class lets go; counts those that are being made at the same time."""

    go: asyncio.Event
    now = 0
    peak = 0

    @override
    async def boot(self) -> None:
        HeldAtStart.now += 1
        HeldAtStart.peak = max(HeldAtStart.peak, HeldAtStart.now)
        try:
            await self.go.wait()
            await super().boot()
        finally:
            HeldAtStart.now -= 1
