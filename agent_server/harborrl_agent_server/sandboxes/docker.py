"""One Docker project a trial: Harbor's own environment makes it, this server enters, bounds and removes it."""

import asyncio
import logging
from typing import IO, Any, override

from harbor.environments.base import ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities, EnvironmentResourceCapabilities
from harbor.environments.docker.docker import _sanitize_docker_compose_project_name

from harborrl_agent_server.bounded import finish
from harborrl_agent_server.errors import (
    SandboxLostError,
    SandboxResourceError,
    SandboxStartError,
    SandboxTransportError,
    SandboxUnusableError,
)
from harborrl_agent_server.sandboxes import client_processes, commands, docker_plan
from harborrl_agent_server.sandboxes.base import ShellSandbox
from harborrl_agent_server.sandboxes.docker_harbor import ServedDocker
from harborrl_agent_server.sandboxes.docker_provider import DockerProvider
from harborrl_agent_server.sandboxes.entered import KILL_SECONDS
from harborrl_agent_server.sandboxes.images import image_of, resources_of
from harborrl_agent_server.sandboxes.joining import JoiningSandbox
from harborrl_agent_server.sandboxes.seals import Seal
from harborrl_agent_server.sandboxes.streams import Capture, Sink
from harborrl_agent_server.scope import CURRENT
from harborrl_agent_server.threads import in_thread

LOG = logging.getLogger(__name__)

DESTROY_SECONDS = 45.0
"""For one removal; then the trial is answered and the reaper goes on."""

SURVEY_LIMIT = 1024 * 1024

KILLED = 137

LOSS_SECONDS = 0.5
"""After a command was killed: how long the daemon may take to tell that its container was."""

SETTLE_SECONDS = 1.0
"""After a start that was cut off: how long the daemon may go on making what it was asked for."""


class DockerSandbox(JoiningSandbox, ServedDocker):
    """`main` of a compose project. Files come and go through the daemon: nothing of this machine is mounted."""

    quiesces_with_others = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        provider = CURRENT.get().provider
        if not isinstance(provider, DockerProvider):
            raise TypeError("a Docker sandbox needs the Docker provider")
        self.provider = provider
        self.filters_hosts = provider.filters_hosts
        self._container: str | None = None
        self._asked = False
        """Whether the daemon may have something of it."""
        self._removed = False
        self._task_owns: str | None = None
        """The processes that the task's own compose file started, as SURVEY tells them."""
        super().__init__(*args, **kwargs)
        self.project = _sanitize_docker_compose_project_name(self.session_id)

    @property
    @override
    def capabilities(self) -> EnvironmentCapabilities:
        harbor = super(ShellSandbox, self).capabilities
        own = {"mounted": False, "windows": False, "stream": False}
        return harbor.model_copy(update=own | {"disable_internet": harbor.disable_internet or self.cut_off})

    @classmethod
    @override
    def resource_capabilities(cls) -> EnvironmentResourceCapabilities:
        return ServedDocker.resource_capabilities()

    @override
    async def boot(self) -> None:
        budget = self.scope.start_s(self)
        try:
            async with asyncio.timeout(budget):
                await self._prepare()
                self._asked = True
                await ServedDocker.start(self, force_build=False)
                self._container = await self.provider.engine.container(self.project, docker_plan.MAIN)
        except SandboxStartError:
            raise
        except TimeoutError as error:
            raise SandboxStartError(
                "NotReady", f"not up within {budget:.0f} s; look at the daemon's load, or raise the start budget"
            ) from error
        except Exception as error:  # Harbor has no class for what Docker refuses
            reason, advice = docker_plan.reason_of(str(error))
            raise SandboxStartError(reason, f"{docker_plan.last_words(str(error))}; {advice}") from error
        if self._container is None:
            raise SandboxStartError("Exited", "the sandbox's first process ended at once; look at the image")
        self.up = True
        if docker_plan.own_first_process(await in_thread(self._own_services)):
            found = Capture(SURVEY_LIMIT)
            await self._plain([commands.SHELL, "-c", commands.SURVEY], limit_s=KILL_SECONDS, stdout=found)
            self._task_owns = " ".join(found.text().split())

    def _own_services(self) -> dict[str, dict[str, Any]]:
        return docker_plan.services(path.read_text() for path in self._user_compose_paths())

    @override
    async def quiesce(self) -> None:
        if self._task_owns is None or self._stopped:
            await super().quiesce()
            return
        await self.settle()
        argv = [commands.SHELL, "-c", commands.QUIESCE_OTHERS, "harborrl", self._task_owns]
        await self._faults_noted(lambda: self._plain(argv, limit_s=KILL_SECONDS))

    async def _prepare(self) -> None:
        """The image on the daemon, and the last of the compose files."""
        provider, inside = self.provider, self.scope.reachable() is not None
        if inside and self.cut_off:
            raise SandboxStartError(
                "NoWayToTheModel", "an agent in a sandbox without network cannot ask its model; name bash or terminus-2"
            )
        image = await in_thread(self._image)
        limits = resources_of(self.task_env_config, provider.config)["limits"]
        self.task_env_config = self.task_env_config.model_copy(update={"docker_image": image})
        self._env_vars.prebuilt_image_name = image
        if image is not None:
            await provider.present(image)
        if self.task_env_config.cpus is not None:
            limits.pop("cpu", None)  # Harbor bounds it by what the task states
        document = docker_plan.overlay(
            await in_thread(self._own_services),
            marks=provider.labels(self.scope.run_id),
            limits=limits,
            pids_limit=provider.config.pids_limit,
            cut_off=self.cut_off,
            reaches_host=inside,
        )
        self.add_overlay(document)

    def _image(self) -> str | None:
        """None: the task's own Dockerfile or compose file is built."""
        provider = self.provider
        config, folder = provider.config, self.environment_dir
        built = config.build and ((folder / "Dockerfile").exists() or bool(self._user_compose_paths()))
        names = [folder.parent.name, self.environment_name]
        fallback = None if built else provider.settings.sandbox_image
        try:
            return image_of(self.task_env_config, names, self.environment_id[:12], config, fallback)
        except SandboxStartError:
            if built:
                return None
            raise

    @override
    async def _upload_environment_dir_after_start(self) -> None:
        if self.up:  # not at the end of Harbor's own start: the workdir is not made yet
            await super()._upload_environment_dir_after_start()

    @override
    async def ensure_dirs(self, *args: Any, **kwargs: Any) -> ExecResult | None:
        return await super().ensure_dirs(*args, **kwargs) if self.up else None

    @override
    async def stream(self, argv: list[str], *, stdin: IO[bytes] | None, stdout: Sink, stderr: Sink) -> int:
        if self._container is None or self._removed:
            raise SandboxLostError(f"sandbox {self.project} {'has been removed' if self._asked else 'never started'}")
        seal = Seal(stderr)
        ends_all = argv[2] in {commands.QUIESCE, commands.QUIESCE_OTHERS}  # also the one who would seal
        sealed = argv if ends_all else seal.argv(argv)
        client = ["docker", "exec", "--user", "0", *(["--interactive"] if stdin else []), self._container]
        environ = self.provider.engine.environ
        code = await self.provider.pulse.unless_silent(
            client_processes.run([*client, *sealed], env=environ, stdin=stdin, stdout=stdout, stderr=seal)
        )
        seal.close()
        if code == 0 or seal.code is not None:
            return seal.code or 0
        return await self._broken_off(code)

    async def _broken_off(self, code: int) -> int:
        """The end of a command that did not tell it: its own doing, or that of what was around it."""
        await self._still_there()
        if code == KILLED:
            await asyncio.sleep(LOSS_SECONDS)
            await self._still_there()
        if code in {126, 127}:
            raise SandboxUnusableError(f"{self.project} has no {commands.SHELL} any more that could be started")
        if code in {1, 255}:
            raise SandboxTransportError(f"docker exec in {self.project} broke off before its command ended")
        return code

    async def _still_there(self) -> None:
        state = await self.provider.engine.state(self._container or "")
        if state is None:
            raise SandboxLostError(f"container {self.project} was removed by somebody; the trial has to run again")
        if state.get("Running"):
            return
        if state.get("OOMKilled"):
            raise SandboxResourceError(f"{self.project}: out of memory; the task's memory is all a trial may use")
        raise SandboxLostError(f"container {self.project} ended ({state.get('ExitCode')}); the trial has to run again")

    @override
    async def destroy(self) -> None:
        if not self._asked or self._removed:
            return
        self.left = True
        await finish(self._destroy(), DESTROY_SECONDS)

    async def _destroy(self) -> None:
        provider = self.provider
        await self.end_clients()
        try:
            if provider.keeps:
                await provider.engine.halt(self.project)
            else:
                await self._remove()
        except SandboxTransportError as error:
            LOG.warning("sandbox %s is not removed: %s", self.project, error)
            return
        self._removed, self.left = True, False
        self.forget_files()

    async def _remove(self) -> None:
        engine, images = self.provider.engine, self.task_env_config.docker_image is None
        await engine.remove(self.project, images=images)
        if not self.up:
            await asyncio.sleep(SETTLE_SECONDS)
            await engine.remove(self.project, images=images)
