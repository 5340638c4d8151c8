"""One pod a trial: allocated, entered through exec, deleted by its uid."""

from typing import IO, Any, override

from harbor.environments.capabilities import EnvironmentCapabilities

from harborrl_agent_server.bounded import finish
from harborrl_agent_server.errors import SandboxLostError
from harborrl_agent_server.sandboxes.allocating import Allocation
from harborrl_agent_server.sandboxes.base import ShellSandbox
from harborrl_agent_server.sandboxes.images import image_of, resources_of
from harborrl_agent_server.sandboxes.kubernetes_provider import KubernetesProvider
from harborrl_agent_server.sandboxes.pods import NO_NETWORK, sandbox_name, sandbox_pod
from harborrl_agent_server.sandboxes.streams import Sink
from harborrl_agent_server.scope import CURRENT

DELETE_SECONDS = 20.0


class KubernetesSandbox(ShellSandbox):
    """One trial's pod."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not isinstance(self.scope.provider, KubernetesProvider):
            raise TypeError("a Kubernetes sandbox needs the Kubernetes provider")
        self.provider = self.scope.provider
        self.name = sandbox_name(self.session_id)
        self._allocation: Allocation | None = None
        self._ready = False
        self._destroyed = False

    @staticmethod
    @override
    def type() -> str:
        return "harborrl-kubernetes"

    @property
    @override
    def capabilities(self) -> EnvironmentCapabilities:
        provider = CURRENT.get().provider  # asked for while the constructor still runs
        return EnvironmentCapabilities(
            gpus=True, disable_internet=isinstance(provider, KubernetesProvider) and provider.isolates
        )

    def manifest(self) -> dict[str, Any]:
        provider = self.provider
        names = [self.environment_dir.parent.name, self.environment_name]
        isolated = NO_NETWORK if self._network_disabled else {}
        return sandbox_pod(
            name=self.name,
            namespace=provider.namespace,
            labels=provider.labels | isolated | {"harborrl.dev/trial": self.scope.run_id},
            owner=provider.anchor.owner(),
            image=image_of(
                self.task_env_config, names, self.environment_id[:12], provider.config, provider.settings.sandbox_image
            ),
            resources=resources_of(self.task_env_config, provider.config),
            env=self._startup_env(),
            life_s=provider.life_s(),
            config=provider.config,
        )

    @override
    async def boot(self) -> None:
        self._allocation = self.provider.allocation(self.manifest())
        await self._allocation.ready(self.provider.settings.budgets.environment_start_s)
        self._ready = True

    @override
    async def stream(self, argv: list[str], *, stdin: IO[bytes] | None, stdout: Sink, stderr: Sink) -> int:
        if self._allocation is None or not self._ready or self._destroyed:
            raise SandboxLostError(f"sandbox {self.name} {'has been removed' if self._destroyed else 'never started'}")
        return await self.provider.exec.stream(
            self.name, self._allocation.view, argv, stdin=stdin, stdout=stdout, stderr=stderr
        )

    @override
    async def destroy(self) -> None:
        """Delete the pod. A creation still in flight is awaited first: a cancelled request may well have created it."""
        is_first, self._destroyed = not self._destroyed, True
        if self._allocation is None or not (is_first or self.left):
            return
        self.left = True
        self._allocation.abandon()
        await finish(self._delete(self._allocation), DELETE_SECONDS)

    async def _delete(self, allocation: Allocation) -> None:
        uid = await allocation.settled()
        if await self.provider.delete_pod(self.name, uid):
            self.left = False
            self.provider.watch.forget(self.name)
