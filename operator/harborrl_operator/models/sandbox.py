"""`spec.agentServer.sandbox`: the pods in which agents act."""

from typing import Annotated, Literal

from pydantic import Field

from harborrl_operator.models.base import TEXT, FreeForm, Model, ObjectName, Seconds, nested
from harborrl_operator.models.network import Cidr
from harborrl_operator.models.trainer import Resources

DnsLabel = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)]


class SandboxImages(Model):
    """Where a task's image comes from when the task names none or names one by a key."""

    map: dict[str, Annotated[str, Field(min_length=1, json_schema_extra=TEXT)]] = Field(default_factory=dict)
    """Task directory or the image that a task names -> image to use."""
    template: Annotated[str, Field(min_length=1, max_length=1024, json_schema_extra=TEXT)] | None = None
    """Image for tasks that name none; `{task}` is its directory, `{hash}` its content. Unset: the operator's."""
    pull_secrets: Annotated[list[DnsLabel], Field(max_length=16)] = Field(default_factory=list)
    """Image pull secrets in the sandbox namespace."""


class WarmPool(Model):
    """Pods that are started before a trial asks for them."""

    size: Annotated[int, Field(ge=0, le=10_000)] = 0
    """Idle pods kept ready of each image. Default 0, off: they hold their requests while nobody uses them. Above it a
    trial of such an image begins without waiting for a pod; of all together the quota must hold `maxConcurrent` and
    this many: the pool gives way to trials. With
    `allocator: agent-sandbox` it is the size of the pool that is made of a template that has none."""
    images: Annotated[int, Field(ge=1, le=1000)] = 4
    """Images kept warm at most, those used last. Default 4, so that a data set of hundreds of images does
    not fill the namespace; trials of others start cold."""


class Claims(Model):
    """Claims of kubernetes-sigs/agent-sandbox, with `allocator: agent-sandbox`."""

    template: ObjectName | None = None
    """SandboxTemplate in the sandbox namespace of which every claim is made. Unset: none, so `agent-sandbox` is
    refused."""


class Tools(Model):
    """The bundle of tools at `/opt/harborrl-tools` in each sandbox."""

    image: Annotated[str, Field(max_length=1024, pattern=r"^[^\s\x00-\x1f\x7f]*$")] | None = None
    """Image of the bundle. Unset: the operator's where `terminus-2` or `mini-swe-agent` is allowed, none for agents
    that a shell suffices; agents of your own have it where it is named here. Empty: none, so a task's own image must
    hold tmux for the one, the program for the other."""


class SandboxSpec(Model):
    """The pods in which agents act."""

    backend: Literal["kubernetes", "local", "docker"] = "kubernetes"
    """`kubernetes`: one pod a trial. `local` (Linux namespaces, for tests) and `docker` need `url`."""
    namespace: DnsLabel | None = None
    """Namespace of the sandbox pods, labelled `harborrl.dev/sandboxes: "true"`. Unset: the operator's default."""
    allow_same_namespace: bool = False
    """Permit sandboxes beside the job. Off: an agent's pod should not live next to the job's secrets."""
    images: SandboxImages = nested(SandboxImages)
    """Where sandbox images come from."""
    limits: Resources | None = None
    """Most that a task may ask for (`limits` of it); preflight refuses a task that asks for more. Unset: no bound."""
    defaults: Resources | None = None
    """What a task gets that asks for nothing; a ResourceQuota refuses pods without what it counts. Unset: nothing."""
    node_selector: dict[str, Annotated[str, Field(json_schema_extra=TEXT)]] = Field(default_factory=dict)
    """Labels of the nodes that take sandboxes. Unset: any."""
    tolerations: Annotated[list[FreeForm], Field(max_length=32)] = Field(default_factory=list)
    """Taints that sandbox pods tolerate, as in a pod."""
    priority_class_name: ObjectName | None = None
    """Priority class of sandbox pods. Unset: the cluster's default."""
    runtime_class_name: ObjectName | None = None
    """Runtime class of sandbox pods, for example gvisor. Unset: the node's default runtime, a plain container."""
    node_selector_for_gpu: Annotated[
        dict[str, dict[str, Annotated[str, Field(json_schema_extra=TEXT)]]], Field(max_length=64)
    ] = Field(default_factory=dict)
    """Name of a GPU in a task's `gpu_types` -> labels of the nodes that have it, beside `nodeSelector`. Default none:
    a task that asks for a type that is not named here is refused, since any GPU would do for the scheduler."""
    pod_overrides: FreeForm = Field(default_factory=dict)
    """Merged into the pod spec of every sandbox (objects merge, named things such as containers merge by name, other
    lists replace); the container is `main`. What weakens the isolation is refused: host namespaces, paths and ports,
    accounts, Secrets, any securityContext; and what the server needs to run and end the sandbox."""
    private_hosts: Annotated[list[Cidr], Field(max_length=32)] = Field(default_factory=list)
    """Private networks that a task's `allowed_hosts` may name, for example `10.20.0.0/16` of a package mirror. Default
    none: a task that names an address of the cluster, its nodes or a metadata service is refused, since a data set does
    not decide about them."""
    allocator: Literal["pods", "agent-sandbox"] = "pods"
    """Who makes sandboxes. Default `pods`: the agent server itself. `agent-sandbox`: the controller of
    kubernetes-sigs/agent-sandbox, by claims; the chart's `sandboxes.agentSandbox` must be set."""
    claims: Claims = nested(Claims)
    """What claims are made of."""
    warm_pool: WarmPool = nested(WarmPool)
    """Pods that wait for trials."""
    tools: Tools = nested(Tools)
    """What agents in sandboxes need and a task's image may lack."""
    timeout_seconds: Seconds | None = None
    """Life of a sandbox. Unset: trial ceiling + 300 s; the documented 1800 s would end before any 5400 s agent."""
    idle_timeout_seconds: Seconds | None = None
    """Life without a command, s; must be below `timeoutSeconds`. Unset: as long as its trial. Below the model's longest
    reply it ends healthy trials, as `SandboxLost`, which train nothing."""
