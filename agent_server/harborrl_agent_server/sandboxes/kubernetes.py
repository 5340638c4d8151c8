"""One pod a trial: allocated, entered through exec, deleted by its uid."""

import asyncio
from functools import partial
from typing import IO, Any, override

from harbor.environments.capabilities import EnvironmentCapabilities
from harbor.models.task.config import NetworkPolicy

from harborrl_agent_server.bounded import finish
from harborrl_agent_server.errors import (
    SandboxLostError,
    SandboxStartError,
    SandboxTransportError,
    SandboxUnusableError,
)
from harborrl_agent_server.sandboxes.accelerators import gpu_placement
from harborrl_agent_server.sandboxes.allocating import Lease, Pod, obtained
from harborrl_agent_server.sandboxes.idleness import Idleness
from harborrl_agent_server.sandboxes.images import TAG_HASH, image_names, image_of, resources_of
from harborrl_agent_server.sandboxes.joining import JoiningSandbox
from harborrl_agent_server.sandboxes.kubernetes_provider import KubernetesProvider
from harborrl_agent_server.sandboxes.pods import IMAGE_ASKED, sandbox_name, sandbox_pod
from harborrl_agent_server.sandboxes.sandbox_network import SandboxNetwork
from harborrl_agent_server.sandboxes.streams import Sink
from harborrl_agent_server.sandboxes.tries import NoToolError, reached
from harborrl_agent_server.threads import in_thread

DELETE_SECONDS = 20.0

OWN_SHARE = 0.95
"""Of a task's `build_timeout_sec`, after which Harbor ends the start without a reason."""


class KubernetesSandbox(JoiningSandbox):
    """One trial's pod."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not isinstance(self.scope.provider, KubernetesProvider):
            raise TypeError("a Kubernetes sandbox needs the Kubernetes provider")
        self.provider = self.scope.provider
        self.own_name = sandbox_name(self.session_id)
        self.network = SandboxNetwork(
            self.provider.network,
            self.own_name,
            reachable=self.scope.reachable(),
            private=self.provider.config.private_hosts,
        )
        self._lease: Lease | None = None
        self._pod: Pod | None = None
        self._destroyed = False
        self._idleness = Idleness(self.provider.config.idle_timeout_seconds, self._end_idle)
        self._touched = self._phase_network_policies[:1] in ([], [self.network_policy])
        """Whether an agent may have been here when the network changes next. Harbor lists the agent's phase first."""

    @staticmethod
    @override
    def type() -> str:
        return "harborrl-kubernetes"

    @property
    @override
    def capabilities(self) -> EnvironmentCapabilities:
        return EnvironmentCapabilities(
            gpus=True,
            disable_internet=True,
            dynamic_network_policy=True,
            network_allowlist=True,
            network_allowlist_hostnames=True,
            network_allowlist_ipv4_addresses=True,
            network_allowlist_ipv6_addresses=True,
            network_allowlist_ipv4_cidrs=True,
            network_allowlist_ipv6_cidrs=True,
        )

    @override
    def _validate_definition(self) -> None:
        if (self.environment_dir / "docker-compose.yaml").exists():
            raise ValueError("environment/docker-compose.yaml: a pod sandbox has one container; use --sandbox docker")

    @property
    def name(self) -> str:
        """Of its pod; of the one that would be created while it has none."""
        return self._pod.name if self._pod else self.own_name

    def image(self) -> str:
        fallback = self.provider.settings.sandbox_image if self._enable_environment_dir_upload else None
        return image_of(
            self.task_env_config, self.image_names(), self.environment_id[:TAG_HASH], self.provider.config, fallback
        )

    def image_names(self) -> list[str]:
        task = self.environment_dir.parent.name
        return image_names(task, self.environment_name, own_tests=not self._enable_environment_dir_upload)

    def manifest(self) -> dict[str, Any]:
        provider, task = self.provider, self.task_env_config
        pod = sandbox_pod(
            name=self.own_name,
            namespace=provider.namespace,
            labels=provider.labels | {"harborrl.dev/trial": self.scope.run_id} | self.network.labels(),
            owner=provider.anchor.owner(),
            image=provider.pins.pinned(self.image()),
            resources=resources_of(task, provider.config),
            life_s=provider.life_s(),
            config=provider.config,
            extra=gpu_placement(task, provider.config) | self.network.pod_fields(),
        )
        pod["metadata"]["annotations"] = pod["metadata"]["annotations"] | {IMAGE_ASKED: self.image()}
        # A verifier's own sandbox comes second, and no agent works in it.
        part = self.scope.tools if self.scope.sandboxes[0] is self else None
        return provider.tools.mounted(pod, part, provider.attempt)

    @override
    async def boot(self) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.start_budget_s()
        await in_thread(self.image)  # a name may hold the hash of the task's environment, which is read once for it
        await self._prepared(deadline)
        if self._destroyed:
            raise SandboxStartError("Cancelled", "the trial ended before its pod was asked for")
        self._lease = self.provider.allocator.ask(self.manifest(), self.folders())
        try:
            self._pod = await obtained(self._lease, deadline - loop.time())
            self.provider.pins.ran(self.image(), self._pod.view.pod or {})
        except SandboxStartError as error:
            self.provider.tools.failed(error)
            raise
        self._idleness.begin()

    async def _end_idle(self) -> None:
        idle_s = self.provider.config.idle_timeout_seconds
        self.scope.blame(
            SandboxLostError(
                f"nothing ran in sandbox {self.name} for {idle_s:g} s, so it was removed: its model took longer, or "
                "raise agentServer.sandbox.idleTimeoutSeconds"
            )
        )
        await self.destroy()

    @override
    async def prepare(self) -> None:
        if self._pod is None or self._pod.prepared != self.folders():
            await super().prepare()

    async def _prepared(self, deadline: float) -> None:
        try:
            async with asyncio.timeout_at(deadline):
                await self.network.prepare(self.network_policy, self._phase_network_policies, self.image())
        except TimeoutError as error:
            raise SandboxStartError(
                "NetworkNotReady",
                "the sandbox's network was not prepared within the start budget (NetworkPolicies:"
                f" {self.provider.network_policies()}); look at the server's log, or raise environmentStartSeconds",
            ) from error

    def start_budget_s(self) -> float:
        """The task's own limit may be the shorter one; ours ends first, because it can say what was waited for."""
        return min(self.scope.start_s(self), OWN_SHARE * self.task_env_config.build_timeout_sec)

    @override
    async def _apply_network_policy(self, network_policy: NetworkPolicy) -> None:
        """No process of a phase that was restricted lives on in one that is less so."""
        if self._destroyed:
            return  # Harbor goes back to the first phase's network whatever became of the sandbox
        if self.network.reach.restricted:
            await self.quiesce()
        await self.settle()
        trusted, self._touched = not self._touched, True
        reaches = partial(self._reached, trusted=trusted)
        switch = partial(self.network.switch, network_policy, pod=self.name, reaches=reaches, trusted=trusted)
        await self._faults_noted(switch)

    async def _reached(self, *, trusted: bool) -> str | None:
        """After an agent was here, no failing try is a failing sandbox."""
        if self._pod is None:
            return None
        try:
            return await reached(self.provider.exec, self._pod)
        except NoToolError:
            return None
        except (SandboxTransportError, SandboxUnusableError):
            if trusted:
                raise
            return None

    @override
    async def stream(self, argv: list[str], *, stdin: IO[bytes] | None, stdout: Sink, stderr: Sink) -> int:
        if self._pod is None or self._destroyed:
            raise SandboxLostError(f"sandbox {self.name} {'has been removed' if self._destroyed else 'never started'}")
        opened, way = asyncio.Event(), self.provider.exec
        try:
            with self._idleness.busy():
                return await way.stream(self._pod, argv, stdin=stdin, stdout=stdout, stderr=stderr, opened=opened)
        except asyncio.CancelledError:
            if not opened.is_set():
                # The time that somebody gave the command was over before it began: a verifier's end would be scored.
                said = f"the connection to {self.name} did not open before the time for its command was over"
                self.scope.blame(SandboxTransportError(said))
            raise

    @override
    async def destroy(self) -> None:
        """Delete the pod. A creation still in flight is awaited first: a cancelled request may well have created it."""
        is_first, self._destroyed = not self._destroyed, True
        self._idleness.close()
        if not (is_first or self.left):
            return
        self.left = True
        await finish(self._remove(), DELETE_SECONDS)

    async def _remove(self) -> None:
        """The pod first: while its policy stands, it stays closed."""
        gone = self._lease is None or await self._lease.give_back()
        if gone and await self.network.remove():
            self.left = False
