"""One pod a trial: created, watched, entered through exec, deleted by its uid."""

import asyncio
import logging
from functools import partial
from typing import IO, Any, override

import aiohttp
from harbor.environments.capabilities import EnvironmentCapabilities
from harbor.models.trial.config import EnvironmentConfig
from pydantic import ValidationError

from harborrl_agent_server.bounded import finish, keep
from harborrl_agent_server.errors import (
    SandboxLostError,
    SandboxResourceError,
    SandboxStartError,
    SandboxTransportError,
    StartupError,
)
from harborrl_agent_server.sandboxes import wire
from harborrl_agent_server.sandboxes.anchors import Anchor, Anchors
from harborrl_agent_server.sandboxes.base import ShellSandbox, chunks
from harborrl_agent_server.sandboxes.cluster import Cluster, KubeError, KubeUnreachableError, settled
from harborrl_agent_server.sandboxes.images import SandboxConfig, image_of, resources_of
from harborrl_agent_server.sandboxes.pods import (
    NO_NETWORK,
    State,
    Verdict,
    judge,
    labels_for,
    no_network_policy,
    sandbox_name,
    sandbox_pod,
)
from harborrl_agent_server.sandboxes.refusals import refusal_of
from harborrl_agent_server.sandboxes.standing import ASK_SECONDS, Belonging
from harborrl_agent_server.sandboxes.streams import Sink
from harborrl_agent_server.sandboxes.watch import PodView, PodWatch
from harborrl_agent_server.scope import CURRENT, Standing
from harborrl_agent_server.settings import Settings

LOG = logging.getLogger(__name__)

PULL_GRACE_SECONDS = 45.0
"""How long a failing image pull may be retried: registries hiccup, wrong names do not heal."""

QUOTA_GRACE_SECONDS = 30.0
"""How long a full quota may be retried: pods that are being deleted still count."""

CREATE_PAUSE_SECONDS = 1.0

LIFE_MARGIN_SECONDS = 600.0
"""A pod outlives all budgets by this, then the kubelet ends it."""

DELETE_SECONDS = 20.0

LOSS_SECONDS = 2.0
"""After a broken connection: how long the watch may take to tell that it was the pod that went."""

CONNECT_ATTEMPTS = 3


class KubernetesProvider:
    """Everything that the sandboxes of one server share."""

    def __init__(self, settings: Settings, config: SandboxConfig) -> None:
        self.settings = settings
        self.config = config
        self.namespace = settings.sandbox_namespace
        self.labels = labels_for(settings.job, "sandbox") | {"harborrl.dev/agent-server": settings.pod_name[:63]}
        self.exec_protocols = [wire.V5, wire.V4]
        """Tried in this order until one has worked; servers before Kubernetes 1.30 know only v4."""
        self.pull_grace_s = PULL_GRACE_SECONDS
        self.quota_grace_s = QUOTA_GRACE_SECONDS
        self.isolates = False
        """Whether the policy that cuts off tasks without network is in place; such tasks are refused otherwise."""
        self._cluster: Cluster | None = None
        self._watch: PodWatch | None = None
        self._anchors: Anchors | None = None
        self._belonging: Belonging | None = None

    @classmethod
    def from_settings(cls, settings: Settings) -> "KubernetesProvider":
        try:
            config = SandboxConfig.model_validate(settings.sandbox_config)
        except ValidationError as error:
            first = error.errors()[0]
            raise StartupError(f"--sandbox-config {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
        return cls(settings, config)

    @property
    def cluster(self) -> Cluster:
        return opened(self._cluster)

    @property
    def watch(self) -> PodWatch:
        return opened(self._watch)

    @property
    def anchor(self) -> Anchor:
        return opened(opened(self._anchors).own)

    @property
    def pods_path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    async def open(self) -> None:
        try:
            self._cluster = await Cluster.connect()
        except Exception as error:  # the client has no common base for what configuration and connection may raise
            raise StartupError(
                f"no access to a Kubernetes API server ({error}); run in a pod, set KUBECONFIG, or use --sandbox local"
            ) from error
        self._anchors = Anchors(self._cluster, self.namespace, self.settings.job, self.settings.pod_name)
        await self._anchors.create()
        get = partial(self._cluster.request, "GET", timeout_s=ASK_SECONDS)
        self._belonging = Belonging(get, self.settings.job, self.settings.deployment)
        await self._belonging.remember()
        selector = ",".join(f"{key}={value}" for key, value in self.labels.items())
        await self._sweep(selector)
        self.isolates = await self._isolation()
        self._watch = PodWatch(self._cluster, self.namespace, selector)
        self._watch.start()

    async def _sweep(self, selector: str) -> None:
        """Pods of this server's last life, killed before it could delete them."""
        try:
            left = await self.cluster.request("GET", self.pods_path, query=[("labelSelector", selector)])
        except KubeError as error:
            raise StartupError(
                f"cannot list pods in namespace {self.namespace}: {error}; check RBAC of the chart"
            ) from error
        except KubeUnreachableError as error:
            raise StartupError(f"the API server does not answer: {error}") from error
        for pod in left["items"]:
            LOG.info("deleting sandbox %s of an earlier life", pod["metadata"]["name"])
            await self.delete_pod(pod["metadata"]["name"], pod["metadata"]["uid"])

    async def _isolation(self) -> bool:
        """One NetworkPolicy for all pods labelled as without network, in place before the first of them."""
        path = f"/apis/networking.k8s.io/v1/namespaces/{self.namespace}/networkpolicies"
        try:
            await self.cluster.request("POST", path, body=no_network_policy())
        except KubeUnreachableError as error:
            raise StartupError(f"the API server does not answer: {error}") from error
        except KubeError as error:
            if error.status != 409:
                LOG.warning(
                    "tasks without network will be refused, because their NetworkPolicy cannot be made: %s", error
                )
                return False
        return True

    async def close(self) -> None:
        if self._watch is not None:
            await self._watch.close()
        if self._anchors is not None:
            await self._anchors.remove(with_job=await self.standing() is Standing.ORPHANED)
        if self._cluster is not None:
            await self._cluster.close()
        self._watch = self._anchors = self._belonging = self._cluster = None

    async def standing(self) -> Standing:
        return await self._belonging.standing() if self._belonging is not None else Standing.UNKNOWN

    def environment(self) -> EnvironmentConfig:
        return EnvironmentConfig(import_path=f"{KubernetesSandbox.__module__}:{KubernetesSandbox.__qualname__}")

    async def delete_pod(self, name: str, uid: str | None) -> bool:
        """Whether the API server took it. One that cannot be deleted is tried again later; no trial waits for it."""
        try:
            await settled(self.cluster, f"{self.pods_path}/{name}", uid)
        except (KubeError, KubeUnreachableError) as error:
            LOG.warning("sandbox %s could not be deleted: %s", name, error)
            return False
        return True

    def life_s(self) -> float:
        return self.config.timeout_seconds or self.settings.budgets.total() + LIFE_MARGIN_SECONDS


class KubernetesSandbox(ShellSandbox):
    """One trial's pod."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not isinstance(self.scope.provider, KubernetesProvider):
            raise TypeError("a Kubernetes sandbox needs the Kubernetes provider")
        self.provider = self.scope.provider
        self.name = sandbox_name(self.session_id)
        self._creation: asyncio.Task[dict[str, Any]] | None = None
        self._view: PodView | None = None
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
        manifest = self.manifest()
        self._view = self.provider.watch.expect(self.name)
        budget = self.provider.settings.budgets.environment_start_s
        seen = [Verdict(State.PENDING, "NotCreated", "the API server has not taken the pod yet")]
        try:
            async with asyncio.timeout(budget):
                self._creation = keep(self._create(manifest))
                await asyncio.shield(self._creation)
                await self._until_ready(self._view, seen)
        except TimeoutError as error:
            last = seen[-1]
            raise SandboxStartError(
                last.reason, f"not ready within {budget:.0f} s: {last.message or 'no reason given'}; {advice(last)}"
            ) from error
        self._ready = True

    async def _create(self, manifest: dict[str, Any]) -> dict[str, Any]:
        """Create the pod; busy answers and full quotas are asked again, within the start budget and the quota grace."""
        loop = asyncio.get_running_loop()
        patience = loop.time() + self.provider.quota_grace_s
        while True:
            try:
                return await self.provider.cluster.request("POST", self.provider.pods_path, body=manifest)
            except KubeUnreachableError as error:
                if loop.time() > patience:
                    raise SandboxStartError("ApiUnreachable", str(error)) from error
            except KubeError as error:
                if error.status == 409:
                    return await self.provider.cluster.request("GET", f"{self.provider.pods_path}/{self.name}")
                refusal = refusal_of(error)
                if not refusal.passes or loop.time() > patience:
                    raise SandboxStartError(refusal.reason, f"{error.message or error}; {refusal.advice}") from error
            if self._destroyed:
                raise SandboxStartError("Cancelled", "the trial ended before its pod was created")
            await asyncio.sleep(CREATE_PAUSE_SECONDS)

    async def _until_ready(self, view: PodView, seen: list[Verdict]) -> None:
        """Returns when the container runs; `seen` ends with the newest verdict, for whoever cuts the wait short."""
        loop = asyncio.get_running_loop()
        patience: float | None = None
        while True:
            change = asyncio.ensure_future(view.change())
            try:
                seen.append(judge(view.pod, gone=view.gone) if view.pod else seen[-1])
                last = seen[-1]
                if last.state is State.READY:
                    return
                if last.state is State.TROUBLED and patience is None:
                    patience = loop.time() + self.provider.pull_grace_s
                if last.state is State.FAILED or (patience is not None and loop.time() >= patience):
                    raise SandboxStartError(last.reason, f"{last.message}; {advice(last)}")
                await asyncio.wait({change}, timeout=None if patience is None else patience - loop.time())
            finally:
                change.cancel()

    @override
    async def stream(self, argv: list[str], *, stdin: IO[bytes] | None, stdout: Sink, stderr: Sink) -> int:
        view = self._view
        if view is None or not self._ready or self._destroyed:
            raise SandboxLostError(f"sandbox {self.name} {'has been removed' if self._destroyed else 'never started'}")
        talk = asyncio.ensure_future(self._talk(argv, stdin, stdout, stderr))
        loss = asyncio.ensure_future(lost(view))
        try:
            await asyncio.wait({talk, loss}, return_when=asyncio.FIRST_COMPLETED)
            if talk.done() and talk.exception() is None:
                return talk.result()
            if not loss.done():
                await asyncio.wait({loss}, timeout=LOSS_SECONDS)
            if loss.done():
                raise self._loss(loss.result())
            return talk.result()
        finally:
            for task in (talk, loss):
                task.cancel()
            await asyncio.gather(talk, loss, return_exceptions=True)

    def _loss(self, verdict: Verdict) -> Exception:
        said = f"sandbox {self.name}: {verdict.reason}, {verdict.message}"
        if verdict.own_limits:
            return SandboxResourceError(f"{said}; the task's memory or storage is all a trial may use")
        return SandboxLostError(f"{said}; the trial has to run again")

    async def _talk(self, argv: list[str], stdin: IO[bytes] | None, stdout: Sink, stderr: Sink) -> int:
        socket = await self._connect(argv, stdin)
        try:
            return await wire.converse(
                socket,
                stdin=chunks(stdin) if stdin else None,
                stdout=stdout,
                stderr=stderr,
            )
        except (aiohttp.ClientError, ConnectionError) as error:
            raise SandboxTransportError(f"exec in {self.name}: {type(error).__name__}: {error}") from error

    async def _connect(self, argv: list[str], stdin: IO[bytes] | None) -> aiohttp.ClientWebSocketResponse:
        """An open connection. A refused handshake has run nothing, so it may be tried again."""
        provider = self.provider
        words = counted(argv, stdin)
        refusal: Exception = SandboxTransportError("not tried")
        for attempt in range(CONNECT_ATTEMPTS):
            if attempt:
                await asyncio.sleep(0.2 * attempt)
            for protocol in provider.exec_protocols:
                try:
                    socket = await provider.cluster.exec_socket(
                        provider.namespace, self.name, words, stdin=stdin is not None, protocol=protocol
                    )
                except (aiohttp.ClientError, TimeoutError, OSError) as error:
                    refusal = error
                else:
                    provider.exec_protocols = [protocol]
                    return socket
        raise SandboxTransportError(
            f"exec in {self.name} was refused: {refusal}; check pods/exec in the chart's RBAC, and the API server"
        ) from refusal

    @override
    async def destroy(self) -> None:
        """Delete the pod. A creation still in flight is awaited first: a cancelled request may well have created it."""
        is_first, self._destroyed = not self._destroyed, True
        if self._creation is None or not (is_first or self.left):
            return
        self.left = True
        await finish(self._delete(self._creation), DELETE_SECONDS)

    async def _delete(self, creation: asyncio.Task[dict[str, Any]]) -> None:
        await asyncio.wait({creation})
        failed = creation.cancelled() or creation.exception() is not None
        uid = None if failed else creation.result()["metadata"]["uid"]
        if await self.provider.delete_pod(self.name, uid):
            self.left = False
            self.provider.watch.forget(self.name)


def advice(verdict: Verdict) -> str:
    if verdict.reason in {"ImagePullFailed", "InvalidImageName", "ErrImageNeverPull"}:
        return "check the image's name, its registry and agentServer.sandbox.images.pullSecrets"
    if verdict.reason == "Unschedulable":
        return "lower the task's resources, add nodes, or lower --max-concurrent"
    return "look at the pod's events in the sandbox namespace"


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
    if stdin is None:
        return argv
    stdin.seek(0, 2)
    size = stdin.tell()
    stdin.seek(0)
    return ["/bin/sh", "-c", 'n=$1; shift; head -c "$n" | "$@"', "harborrl", str(size), *argv]


def opened[Thing](thing: Thing | None) -> Thing:
    if thing is None:
        raise RuntimeError("the sandbox provider is not open")
    return thing
