"""What the Docker sandboxes of one server share: the daemon, checked before anything listens, and its images."""

import asyncio
import logging
import os
from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from uuid import uuid4

from harbor.environments.docker.docker import DockerEnvironment
from harbor.models.trial.config import EnvironmentConfig
from pydantic import ValidationError

from harborrl_agent_server.bounded import alone
from harborrl_agent_server.errors import SandboxStartError, SandboxTransportError, StartupError
from harborrl_agent_server.sandboxes.docker_engine import Engine
from harborrl_agent_server.sandboxes.docker_plan import (
    SERVER_LABEL,
    DockerConfig,
    labels,
    last_words,
    networks_in,
    reason_of,
)
from harborrl_agent_server.sandboxes.docker_pulse import Pulse
from harborrl_agent_server.sandboxes.once import Once
from harborrl_agent_server.scope import Standing
from harborrl_agent_server.settings import Settings

LOG = logging.getLogger(__name__)

SANDBOX = "harborrl_agent_server.sandboxes.docker:DockerSandbox"


class DockerProvider:
    """Opened once; makes one compose project a trial."""

    def __init__(self, settings: Settings, config: DockerConfig, engine: Engine | None = None) -> None:
        self.settings = settings
        self.keeps = False
        """Whether containers stay after their trials, stopped: HARBOR_DELETE_CONTAINERS=false."""
        self.config = config
        self.engine = engine or Engine()
        self.filters_hosts = False
        """Whether Harbor's filter for allow-lists works on the daemon's kernel; such tasks are refused otherwise."""
        self.pulse = Pulse(partial(self.engine.ask, "version", "--format", "{{.Server.Version}}"))
        self._beating: asyncio.Task[None] | None = None
        self._once = Once()
        self._server = f"{settings.server_name}-{settings.port}"
        self._life = uuid4().hex[:12]
        self._pulls: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    @classmethod
    def from_settings(cls, settings: Settings, environ: Mapping[str, str] = os.environ) -> "DockerProvider":
        try:
            config = DockerConfig.model_validate(settings.sandbox_config)
        except ValidationError as error:
            first = error.errors()[0]
            raise StartupError(f"--sandbox-config {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
        provider = cls(settings, config, Engine(environ))
        provider.keeps = environ.get("HARBOR_DELETE_CONTAINERS", "").lower() in {"0", "false", "no"}
        return provider

    def labels(self, run_id: str) -> dict[str, str]:
        return labels(self.settings.job, server=self._server, life=self._life, trial=run_id)

    async def open(self) -> None:
        with self._once.opening():
            await self._open()

    async def _open(self) -> None:
        try:
            info = await self.engine.info()
            await self._compose_is_there()
            await self._sweep("of an earlier life")
            await self._warn_of_few_networks(info)
        except SandboxTransportError as error:
            raise StartupError(
                f"--sandbox docker: {error}; start the daemon, correct DOCKER_HOST, or use another --sandbox"
            ) from error
        if info.get("OSType") != "linux":
            raise StartupError(f"--sandbox docker: the daemon runs {info.get('OSType')} containers; switch it to Linux")
        if self.config.allowlist:
            self.filters_hosts = await asyncio.to_thread(DockerEnvironment._egress_control_kernel_support)  # noqa: SLF001 - Harbor's own probe
            if not self.filters_hosts:
                LOG.warning("tasks with an allow-list will be refused: Harbor's probe of the daemon's kernel failed")

        self._beating = alone(self.pulse.keep_beating())

    async def _compose_is_there(self) -> None:
        answer = await self.engine.ask("compose", "version", "--short")
        if answer.code:
            raise StartupError(
                "--sandbox docker needs the compose plugin: install docker-compose-plugin, so that"
                " `docker compose version` works"
            )

    async def _sweep(self, whose: str) -> None:
        """Trials of this server, by its host name and port: there is one at a time."""
        for project in await self.engine.projects(SERVER_LABEL, self._server):
            LOG.info("removing sandbox %s %s", project, whose)
            await self.engine.remove(project, images=True)

    async def _warn_of_few_networks(self, info: dict[str, object]) -> None:
        pools = info.get("DefaultAddressPools")
        held = networks_in(pools if isinstance(pools, list) else None)
        used = len((await self.engine.ask("network", "ls", "--quiet", "--filter", "driver=bridge")).lines())
        if held - used < self.settings.max_concurrent:
            LOG.warning(
                "Docker's address pools have room for %d more networks and --max-concurrent is %d: give the daemon"
                " more default-address-pools; tasks without network need none",
                max(held - used, 0),
                self.settings.max_concurrent,
            )

    async def present(self, image: str) -> None:
        """Have the image on the daemon; one pull at a time for each. Raises `SandboxStartError`."""
        async with self._pulls[image]:
            if not (await self.engine.ask("image", "inspect", "--format", "{{.Id}}", image)).code:
                return
            LOG.info("pulling %s", image)
            budget = self.settings.budgets.environment_start_s
            answer = await self.engine.ask("pull", "--quiet", image, limit_s=budget)
        if answer.code:
            _, advice = reason_of("pull access denied")
            raise SandboxStartError("ImagePullFailed", f"{image}: {last_words(answer.err)}; {advice}")

    async def close(self) -> None:
        """Each trial removes its own; this is for what was left."""
        self._once.closed()
        if self._beating is not None:
            self._beating.cancel()
        if self.keeps:
            return
        try:
            await self._sweep("that was left")
        except SandboxTransportError as error:
            LOG.warning("sandboxes may be left, the next start of this server removes them: %s", error)

    async def standing(self) -> Standing:
        """Nobody starts another version of a server without a cluster."""
        return Standing.ALONE

    def environment(self) -> EnvironmentConfig:
        return EnvironmentConfig(import_path=SANDBOX)
