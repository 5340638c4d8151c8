"""Commands in a pod: one exec connection each, raced against the loss of the pod itself."""

import asyncio
from typing import IO, Protocol

import aiohttp

from harborrl_agent_server.errors import (
    SandboxLostError,
    SandboxResourceError,
    SandboxTransportError,
    SandboxUnusableError,
)
from harborrl_agent_server.sandboxes import wire
from harborrl_agent_server.sandboxes.cluster import Cluster
from harborrl_agent_server.sandboxes.commands import COUNTS
from harborrl_agent_server.sandboxes.pods import State, Verdict, judge
from harborrl_agent_server.sandboxes.streams import Sink, chunks
from harborrl_agent_server.sandboxes.watch import PodView

LOSS_SECONDS = 2.0
"""After a broken connection: how long the watch may take to tell that it was the pod that went."""

CONNECT_ATTEMPTS = 3

HANDSHAKE_SECONDS = 30.0
"""An API server that takes a connection and says nothing would else use up the budget of whatever waits behind it."""


class Target(Protocol):
    """A pod that runs."""

    @property
    def name(self) -> str: ...
    @property
    def view(self) -> PodView: ...
    @property
    def container(self) -> str: ...


class PodExec:
    """The way into the pods of one namespace."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self.handshake_s = HANDSHAKE_SECONDS
        self._protocols = [wire.V5, wire.V4]
        """Tried in this order until one has worked; servers before Kubernetes 1.30 know only v4."""

    async def stream(
        self,
        pod: Target,
        argv: list[str],
        *,
        stdin: IO[bytes] | None,
        stdout: Sink,
        stderr: Sink,
        opened: asyncio.Event | None = None,
    ) -> int:
        """One command's exit code; raises one of the sandbox's faults when the pod or the connection breaks.

        `opened` is set once the connection is there.
        """
        talk = asyncio.ensure_future(self._talk(pod, argv, stdin, (stdout, stderr), opened or asyncio.Event()))
        loss = asyncio.ensure_future(lost(pod.view))
        try:
            await asyncio.wait({talk, loss}, return_when=asyncio.FIRST_COMPLETED)
            if talk.done() and talk.exception() is None:
                return talk.result()
            if not loss.done():
                await asyncio.wait({loss}, timeout=LOSS_SECONDS)
            if loss.done():
                raise loss_error(pod.name, loss.result())
            return talk.result()
        finally:
            for task in (talk, loss):
                task.cancel()
            await asyncio.gather(talk, loss, return_exceptions=True)

    async def _talk(
        self, pod: Target, argv: list[str], stdin: IO[bytes] | None, outputs: tuple[Sink, Sink], opened: asyncio.Event
    ) -> int:
        try:
            socket = await self._connect(pod, argv, stdin)
        except TimeoutError as error:
            said = f"exec in {pod.name}: the API server did not answer within {self.handshake_s:g} s"
            raise SandboxTransportError(said) from error
        opened.set()
        stdout, stderr = outputs
        try:
            return await wire.converse(
                socket,
                stdin=chunks(stdin) if stdin else None,
                stdout=stdout,
                stderr=stderr,
            )
        except (aiohttp.ClientError, ConnectionError) as error:
            raise SandboxTransportError(f"exec in {pod.name}: {type(error).__name__}: {error}") from error

    async def _connect(self, pod: Target, argv: list[str], stdin: IO[bytes] | None) -> aiohttp.ClientWebSocketResponse:
        """An open connection. A refused handshake has run nothing, so it may be tried again.

        One without an answer may have: it ends in a TimeoutError.
        """
        words = counted(argv, stdin)
        refusal: Exception = SandboxTransportError("not tried")
        for attempt in range(CONNECT_ATTEMPTS):
            if attempt:
                await asyncio.sleep(0.2 * attempt)
            for protocol in self._protocols:
                try:
                    async with asyncio.timeout(self.handshake_s):
                        socket = await self._cluster.exec_socket(
                            self._namespace,
                            pod.name,
                            words,
                            container=pod.container,
                            stdin=stdin is not None,
                            protocol=protocol,
                        )
                except TimeoutError:  # before OSError, whose kind it is
                    raise
                except (aiohttp.ClientError, OSError) as error:
                    refusal = error
                else:
                    self._protocols = [protocol]
                    return socket
        raise SandboxTransportError(
            f"exec in {pod.name} was refused: {refusal}; check pods/exec in the chart's RBAC, and the API server"
        ) from refusal


def loss_error(name: str, verdict: Verdict) -> Exception:
    said = f"sandbox {name}: {verdict.reason}, {verdict.message}"
    if verdict.own_limits:
        return SandboxResourceError(f"{said}; the task's memory or storage is all a trial may use")
    if verdict.by_itself:
        return SandboxUnusableError(f"{said} Nobody deleted it: a process of its own ended it")
    return SandboxLostError(f"{said}; the trial has to run again")


async def lost(view: PodView) -> Verdict:
    """Returns when the pod can no longer be what it was."""
    while True:
        change = asyncio.ensure_future(view.change())
        try:
            if view.pod and (verdict := judge(view.pod, gone=view.gone)).state is State.FAILED:
                return verdict
            await change
        finally:
            change.cancel()


def counted(argv: list[str], stdin: IO[bytes] | None) -> list[str]:
    """The remote side reads exactly what will be sent: no protocol ends standard input without loss (0033)."""
    if stdin is None or argv[3:4] == [COUNTS]:
        return argv
    stdin.seek(0, 2)
    size = stdin.tell()
    stdin.seek(0)
    return ["/bin/sh", "-c", 'n=$1; shift; head -c "$n" | "$@"', "harborrl", str(size), *argv]
