"""Harbor's Docker environment as a server can run it: nothing blocks the loop, no client outlives its caller."""

import asyncio
import contextlib
import json
import tempfile
from pathlib import Path
from typing import Any, override

from harbor.environments.base import ExecResult, OutputCallback
from harbor.environments.docker.docker import DockerEnvironment
from harbor.models.task.config import NetworkMode, NetworkPolicy

from harborrl_agent_server.bounded import finish
from harborrl_agent_server.errors import SandboxStartError
from harborrl_agent_server.sandboxes.docker_plan import last_words, reason_of

CUT_OFF_SECONDS = 10.0
"""For a client that was told to end: asked first, killed after five seconds."""


class ServedDocker(DockerEnvironment):
    """Harbor's start, with one compose file more and its clients in hand."""

    cut_off: bool
    """Whether the sandbox gets no network at all, which needs none of Harbor's filters."""
    filters_hosts: bool
    """Whether Harbor's filter for allow-lists works here; the heir sets it before Harbor's constructor runs."""
    up = False
    """Whether the containers run."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._clients: set[asyncio.subprocess.Process] = set()
        self._overlay: Path | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self.cut_off = wants_no_network(kwargs)
        super().__init__(*args, **kwargs)

    @override
    def _requires_egress_control(self, **policies: Any) -> bool:  # type: ignore[override] # Harbor calls it on the instance
        return not self.cut_off and super()._requires_egress_control(**policies)

    @override
    def _egress_control_kernel_support(self) -> bool:  # type: ignore[override] # same
        return self.filters_hosts

    @override
    def _validate_daemon_mode(self) -> None:
        """The provider has asked; Harbor would hold the event loop for each trial."""

    @override
    async def _validate_image_os(self, image_name: str) -> None:
        """Same."""

    @property
    @override
    def _docker_compose_paths(self) -> list[Path]:
        return [*super()._docker_compose_paths, *([self._overlay] if self._overlay else [])]

    @override
    async def _run_docker_compose_command(
        self,
        command: list[str],
        check: bool = True,
        timeout_sec: int | None = None,
        stdin_data: bytes | None = None,
        on_output: OutputCallback | None = None,
    ) -> ExecResult:
        if command[0] == "down" and not self.up:
            return ExecResult(return_code=0)  # before a start: names are never used twice
        result = await super()._run_docker_compose_command(command, False, timeout_sec, stdin_data, on_output)
        if check and result.return_code:
            said = result.stdout or ""
            reason, advice = reason_of(said)
            raise SandboxStartError(reason, f"docker compose {command[0]}: {last_words(said)}; {advice}")
        return result

    @override
    async def _collect_buffered_output(  # type: ignore[override] # Harbor calls it on the instance
        self, process: asyncio.subprocess.Process, **limits: Any
    ) -> ExecResult:
        """A client whose caller is gone is ended: Harbor lets it run on."""
        self._clients.add(process)
        try:
            return await super()._collect_buffered_output(process, **limits)
        finally:
            if process.returncode is None:
                await finish(self._terminate_process(process), CUT_OFF_SECONDS)
            self._clients.discard(process)

    async def end_clients(self) -> None:
        for client in self._clients.copy():
            await self._terminate_process(client)

    def add_overlay(self, document: dict[str, Any]) -> None:
        """The last of the compose files."""
        self._folder = tempfile.TemporaryDirectory(prefix="harborrl-docker-")
        self._overlay = Path(self._folder.name) / "harborrl.json"
        self._overlay.write_text(json.dumps(document))

    def forget_files(self) -> None:
        for forget in (
            self._cleanup_mounts_compose_file,
            self._cleanup_resources_compose_file,
            self._cleanup_env_compose_file,
            self._cleanup_egress_control_services_compose_file,
        ):
            forget()
        if self._folder is not None:
            with contextlib.suppress(OSError):
                self._folder.cleanup()


def wants_no_network(made_with: dict[str, Any]) -> bool:
    """Whether a sandbox has no network in any phase and no other containers: then it gets none at all."""
    policies = [made_with.get("network_policy") or NetworkPolicy(), *(made_with.get("phase_network_policies") or ())]
    alone = not (Path(made_with["environment_dir"]) / "docker-compose.yaml").exists()
    return alone and all(policy.network_mode == NetworkMode.NO_NETWORK for policy in policies)
