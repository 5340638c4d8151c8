"""What the sandboxes of one server share on Kubernetes: the connection, the watch, the anchors, the isolation."""

import logging
import time
from functools import partial
from typing import Any
from uuid import uuid4

from harbor.models.trial.config import EnvironmentConfig
from pydantic import ValidationError

from harborrl_agent_server.errors import StartupError
from harborrl_agent_server.sandboxes import probing
from harborrl_agent_server.sandboxes.allocating import Allocator, Patience, obtained
from harborrl_agent_server.sandboxes.anchors import Anchor, Anchors
from harborrl_agent_server.sandboxes.claiming import ClaimAllocator
from harborrl_agent_server.sandboxes.cluster import Cluster, KubeError, KubeUnreachableError
from harborrl_agent_server.sandboxes.cluster_network import ClusterNetwork
from harborrl_agent_server.sandboxes.creating import ColdAllocator, ColdLease
from harborrl_agent_server.sandboxes.enforcement import Enforcement
from harborrl_agent_server.sandboxes.images import SandboxConfig
from harborrl_agent_server.sandboxes.once import Once
from harborrl_agent_server.sandboxes.pins import ImagePins
from harborrl_agent_server.sandboxes.pod_exec import PodExec
from harborrl_agent_server.sandboxes.pods import labels_for, sandbox_pod
from harborrl_agent_server.sandboxes.policies import removed
from harborrl_agent_server.sandboxes.probe import Finding
from harborrl_agent_server.sandboxes.standing import ASK_SECONDS, Belonging
from harborrl_agent_server.sandboxes.tools_volume import ToolsVolume
from harborrl_agent_server.sandboxes.warm_leases import WarmAllocator
from harborrl_agent_server.sandboxes.warm_plan import Rules
from harborrl_agent_server.sandboxes.watch import PodWatch
from harborrl_agent_server.scope import Standing
from harborrl_agent_server.settings import Settings
from harborrl_agent_server.warmth import Warmth

LOG = logging.getLogger(__name__)

SANDBOX = "harborrl_agent_server.sandboxes.kubernetes:KubernetesSandbox"
"""By name: Harbor imports it per trial, and the class itself needs this module."""

ATTEMPT_SECONDS = 120.0
"""For a pod that tries what the nodes can do; its image may have to be pulled."""

LIFE_MARGIN_SECONDS = 600.0
"""A pod outlives all budgets by this, then the kubelet ends it."""


class KubernetesProvider:
    """Everything that the sandboxes of one server share."""

    def __init__(self, settings: Settings, config: SandboxConfig) -> None:
        self.settings = settings
        self.config = config
        self.namespace = settings.sandbox_namespace
        self.labels = labels_for(settings.job, "sandbox") | {"harborrl.dev/agent-server": settings.server_name[:63]}
        self.patience = Patience()
        self.enforcement = Enforcement(self._probe, time.monotonic, ignored=settings.unsafe_ignore_network_policy)
        self.tools = ToolsVolume(config.tools.image)
        self.pins = ImagePins(enabled=config.allocator == "pods")
        self._once = Once()
        self._cluster: Cluster | None = None
        self._exec: PodExec | None = None
        self._network: ClusterNetwork | None = None
        self._watch: PodWatch | None = None
        self._allocator: Allocator | None = None
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
    def exec(self) -> PodExec:
        return opened(self._exec)

    @property
    def network(self) -> ClusterNetwork:
        return opened(self._network)

    @property
    def watch(self) -> PodWatch:
        return opened(self._watch)

    @property
    def allocator(self) -> Allocator:
        return opened(self._allocator)

    @property
    def anchor(self) -> Anchor:
        return opened(opened(self._anchors).own)

    @property
    def pods_path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    async def open(self) -> None:
        self._once.refuse_while_open()
        try:
            cluster = await Cluster.connect()
        except Exception as error:  # the client has no common base for what configuration and connection may raise
            raise StartupError(
                f"no access to a Kubernetes API server ({error}); run in a pod, set KUBECONFIG, or use --sandbox local"
            ) from error
        await self.start(cluster)

    async def start(self, cluster: Cluster) -> None:
        """Over a connection that is closed with this."""
        with self._once.opening():
            await self._start(cluster)

    async def _start(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._exec = PodExec(cluster, self.namespace)
        self._anchors = Anchors(
            cluster, self.namespace, self.settings.job, self.settings.pod_name, self.settings.server_name
        )
        anchor = await self._anchors.create()
        get = partial(cluster.request, "GET", timeout_s=ASK_SECONDS)
        self._belonging = Belonging(get, self.settings.job, self.settings.deployment)
        await self._belonging.remember()
        selector = ",".join(f"{key}={value}" for key, value in self.labels.items())
        self._watch = PodWatch(cluster, self.namespace, selector)
        await self._sweep(selector)
        self._network = ClusterNetwork(cluster, self.namespace, self.labels, anchor, self.enforcement)
        await self._network.open(selector)
        self._watch.start()
        self._allocator = self._chosen()
        await self._allocator.open()
        if image := self.settings.sandbox_image:
            self.enforcement.begin(image)

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

    async def close(self) -> None:
        await self.enforcement.close()
        if self._allocator is not None:
            await self._allocator.close()
        if self._watch is not None:
            await self._watch.close()
        if self._anchors is not None:
            await self._anchors.remove(with_job=await self.standing() is Standing.ORPHANED)
        if self._cluster is not None:
            await self._cluster.close()
        self._allocator = self._watch = self._anchors = self._belonging = self._exec = self._network = self._cluster = (
            None
        )
        self._once.closed()

    async def standing(self) -> Standing:
        return await self._belonging.standing() if self._belonging is not None else Standing.UNKNOWN

    def network_policies(self) -> str:
        return self.enforcement.state()

    def environment(self) -> EnvironmentConfig:
        return EnvironmentConfig(import_path=SANDBOX)

    async def delete_pod(self, name: str, uid: str | None) -> bool:
        """Whether the API server took it. One that cannot be deleted is tried again later; no trial waits for it."""
        taken = await removed(self.cluster, f"{self.pods_path}/{name}", uid)
        if taken:
            self.watch.forget(name)
        return taken

    def _chosen(self) -> Allocator:
        pool = self.config.warm_pool
        if self.config.allocator == "agent-sandbox" and self.config.claims.template:
            return ClaimAllocator(self, self.config.claims.template, pool.size)
        if pool.size:
            return WarmAllocator(self, Rules(pool.size, pool.images), self.settings.max_concurrent)
        return ColdAllocator(self)

    def warmth(self) -> Warmth:
        return self.allocator.warmth()

    def probe_pod(self, name: str, labels: dict[str, str], image: str) -> dict[str, Any]:
        return sandbox_pod(
            name=name,
            namespace=self.namespace,
            labels=self.labels | labels,
            owner=self.anchor.owner(),
            image=image,
            resources=probing.RESOURCES,
            life_s=LIFE_MARGIN_SECONDS,
            config=self.config,
        )

    async def _probe(self, image: str) -> Finding:
        return await probing.probe(self, f"sb-probe-{uuid4().hex[:10]}", image)

    async def attempt(self, manifest: dict[str, Any]) -> None:
        """Start a pod that runs no trial, and remove it; raises `SandboxStartError` when it does not start."""
        manifest["metadata"]["labels"] = self.labels
        lease = ColdLease(self, manifest, patience=Patience(pull_s=5, quota_s=5))
        try:
            await obtained(lease, ATTEMPT_SECONDS)
        finally:
            await lease.give_back()

    async def cool(self) -> None:
        await self.allocator.cool()

    def life_s(self) -> float:
        return self.config.timeout_seconds or self.settings.budgets.total() + LIFE_MARGIN_SECONDS


def opened[Thing](thing: Thing | None) -> Thing:
    if thing is None:
        raise RuntimeError("the sandbox provider is not open")
    return thing
