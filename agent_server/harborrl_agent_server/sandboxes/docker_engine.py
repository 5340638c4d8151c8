"""The `docker` program, every call of it bounded: a daemon may hang, and then no call of its client returns."""

import asyncio
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from harborrl_agent_server.errors import SandboxTransportError
from harborrl_agent_server.sandboxes import client_processes
from harborrl_agent_server.sandboxes.docker_plan import DAEMON_GONE, PROJECT_LABEL, last_words
from harborrl_agent_server.sandboxes.streams import Capture

ASK_SECONDS = 15.0
REMOVE_SECONDS = 20.0
KEPT = 1024 * 1024
"""Bytes of an answer."""

KINDS = (
    ("container", ("ps", "--all"), ("rm", "--force", "--volumes")),
    ("network", ("network", "ls"), ("network", "rm")),
    ("volume", ("volume", "ls"), ("volume", "rm", "--force")),
    ("image", ("image", "ls"), ("image", "rm", "--force")),
)
"""What compose makes, in the order in which it lets itself be removed: how it is listed, how removed."""


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str

    def lines(self) -> list[str]:
        return self.out.split()


class Engine:
    """A Docker daemon, as the environment (DOCKER_HOST, DOCKER_CONTEXT, DOCKER_CONFIG) names it."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self.environ = environ

    async def ask(self, *words: str, limit_s: float = ASK_SECONDS) -> Answer:
        """Run the client to its end. Raises `SandboxTransportError` when the daemon is away or does not answer."""
        out, err = Capture(KEPT), Capture(KEPT)
        try:
            async with asyncio.timeout(limit_s):
                code = await client_processes.run(
                    ["docker", *words], env=self.environ, stdin=None, stdout=out, stderr=err
                )
        except TimeoutError as error:
            raise SandboxTransportError(
                f"docker {words[0]}: no answer from the daemon within {limit_s:.0f} s"
            ) from error
        except OSError as error:
            raise SandboxTransportError(f"docker cannot be run: {error}") from error
        answer = Answer(code, out.text(), err.text())
        if code and DAEMON_GONE.search(answer.err):
            raise SandboxTransportError(f"docker {words[0]}: {last_words(answer.err)}")
        return answer

    async def info(self) -> dict[str, Any]:
        answer = await self.ask("info", "--format", "{{json .}}")
        found = json.loads(answer.out) if answer.out.strip() else {}
        if answer.code or found.get("ServerErrors"):
            raise SandboxTransportError(last_words(answer.err or "; ".join(found.get("ServerErrors") or [])))
        return dict(found)

    async def state(self, container: str) -> dict[str, Any] | None:
        """`State` of a container; None when there is no such container."""
        answer = await self.ask("inspect", "--type", "container", "--format", "{{json .State}}", container)
        return None if answer.code else dict(json.loads(answer.out))

    async def container(self, project: str, service: str) -> str | None:
        labels = (PROJECT_LABEL, project), ("com.docker.compose.service", service)
        answer = await self.ask("ps", "--quiet", "--no-trunc", *filters(labels))
        return next(iter(answer.lines()), None)

    async def projects(self, label: str, value: str) -> set[str]:
        """Compose projects of which a container or a network has the label."""
        shown = "--format", f'{{{{.Label "{PROJECT_LABEL}"}}}}'
        containers = await self.ask("ps", "--all", *filters([(label, value)]), *shown)
        networks = await self.ask("network", "ls", *filters([(label, value)]), *shown)
        return {*containers.lines(), *networks.lines()}

    async def halt(self, project: str) -> None:
        """Stop a project's containers and keep them."""
        found = (await self.ask("ps", "--quiet", *filters([(PROJECT_LABEL, project)]))).lines()
        if found:
            await self.ask("stop", "--time", "1", *found, limit_s=REMOVE_SECONDS)

    async def remove(self, project: str, *, images: bool = False) -> int:
        """Remove a project's containers, networks and volumes, by force; how many there were.

        `images`: also those that were built for it alone.
        Raises `SandboxTransportError` when one of them stays.
        """
        removed = 0
        for kind, listing, removal in KINDS if images else KINDS[:-1]:
            wanted = (*listing, "--quiet", *filters([(PROJECT_LABEL, project)]))
            found = (await self.ask(*wanted)).lines()
            if not found:
                continue
            removed += len(found)
            answer = await self.ask(*removal, *found, limit_s=REMOVE_SECONDS)
            if answer.code and (await self.ask(*wanted)).lines():
                raise SandboxTransportError(f"a {kind} of {project} stays: {last_words(answer.err)}")
        return removed


def filters(labels: Iterable[tuple[str, str]]) -> list[str]:
    return [word for name, value in labels for word in ("--filter", f"label={name}={value}")]
