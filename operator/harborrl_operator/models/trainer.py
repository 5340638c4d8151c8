"""`spec.trainer`: engine, image, shape and hyper-parameters of the training cluster."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, JsonValue

from harborrl_operator.models.base import LINES, TEXT, FreeForm, Image, Model, Seconds, nested
from harborrl_operator.models.framework import FrameworkConfig
from harborrl_operator.models.shape import LabelValue, Name, Nccl, Rdma, Toleration, TopologyHints

Port = Annotated[int, Field(ge=1024, le=65535)]
RawText = Annotated[str, Field(max_length=65_536, json_schema_extra=LINES)]


class Lora(Model):
    """Low-rank adapters instead of full fine-tuning."""

    rank: Annotated[int, Field(ge=1, le=4096)]
    """Rank of the adapters: their size and what they can learn."""
    alpha: Annotated[float, Field(ge=0)]
    """Scale of the adapters; the update is multiplied by alpha / rank."""
    target_modules: Annotated[
        list[Annotated[str, Field(min_length=1, json_schema_extra=TEXT)]], Field(min_length=1, max_length=64)
    ]
    """Names of the modules that get an adapter."""


class Parallelism(Model):
    """Ways to split the model; unset ones are 1."""

    tp: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Tensor parallel size. Unset: 1."""
    pp: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Pipeline parallel size. Unset: 1."""
    cp: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Context parallel size. Unset: 1."""
    ep: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Expert parallel size. Unset: 1."""
    etp: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Expert tensor parallel size. Unset: 1."""


class Ports(Model):
    """Ports of the trainer Service, reached by the agents."""

    session: Port = 30000
    """Port of the first session server. Default 30000, Miles' own."""
    session_count: Annotated[int, Field(ge=1, le=64)] = 1
    """Session servers, on consecutive ports. Default 1; more spread the agents' requests."""
    router: Port = 31000
    """Port of the inference router. Default 31000, Miles' own."""


SECRET_NAME = r"(?i)(^|_)(API_?KEY|ACCESS_KEY|PRIVATE_KEY|WANDB_KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$"  # noqa: S105 - a pattern
"""Names of variables that hold secrets, for Python and for the API server's RE2 alike."""

_ENV_RULES: list[JsonValue] = [
    {
        "rule": f"!has(self.value) || size(self.value) == 0 || !self.name.matches('{SECRET_NAME}')",
        "message": (
            "the name looks like a secret, and a literal value is readable by anyone who can read the job: put it into"
            " a Secret and use valueFrom.secretKeyRef"
        ),
    },
    {
        "rule": "!self.name.startsWith('HARBORRL_') && !(self.name in ['POD_NAME', 'POD_NAMESPACE'])",
        "message": "HARBORRL_*, POD_NAME and POD_NAMESPACE are set by the operator: remove the variable",
    },
]


class EnvVar(Model):
    """An environment variable; secrets only by reference."""

    model_config = ConfigDict(json_schema_extra={"x-kubernetes-validations": _ENV_RULES})

    name: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=256)]
    """Name of the variable; `HARBORRL_*`, `POD_NAME` and `POD_NAMESPACE` are ours and refused."""
    value: Annotated[str, Field(max_length=32_768, json_schema_extra=LINES)] | None = None
    """Literal value. Anyone who can read pods reads it: no secrets here."""
    value_from: FreeForm | None = None
    """`secretKeyRef`, `configMapKeyRef` or `fieldRef`, as in a pod."""


Quantity = (
    Annotated[int, Field(strict=True, ge=0, le=10**18)]
    | Annotated[str, Field(pattern=r"^[0-9]{1,18}(\.[0-9]{1,9})?([numkMGTPE]|[KMGTPE]i|[eE][0-9]{1,2})?$")]
)
"""A Kubernetes quantity that is not negative; bounded, since we compute with it."""


class Resources(Model):
    """Requests and limits of a container, as in a pod."""

    requests: Annotated[dict[str, Quantity], Field(max_length=32)] = Field(default_factory=dict)
    """What the scheduler reserves."""
    limits: Annotated[dict[str, Quantity], Field(max_length=32)] = Field(default_factory=dict)
    """What the container may use at most."""


class TrainerSpec(Model):
    """The training cluster: `nodes` pods in one RayCluster an attempt."""

    engine: Literal["miles", "native"] = "miles"
    """`miles` runs Miles in its own image (docs/miles.md); `native` is our GRPO loop on CPUs. Default
    miles: the production engine."""
    preset: Annotated[str, Field(min_length=1, max_length=128, json_schema_extra=TEXT)] | None = None
    """Named set of engine flags, with engine miles: `glm47-flash-sync`, `glm47-flash-async` or `glm52-lora`, the
    documented launchers (docs/miles.md); ranks below everything that is set explicitly. Unset: the documented
    defaults of `config`."""
    mode: Literal["sync", "async"] = "sync"
    """`async` rolls out while training, on separate nodes. Default sync: on-policy and on one node."""
    lora: Lora | None = None
    """Train adapters only. Unset: full fine-tuning."""
    parallelism: Parallelism | None = None
    """How the model is split over GPUs. Unset: the preset's or the engine's choice."""
    image: Image | None = None
    """Trainer image. Unset: the operator's default for the engine."""
    nodes: Annotated[int, Field(ge=1, le=1024)] = 1
    """Trainer pods; the first is the Ray head. Above 1 needs `queueName`, the chart's `defaults.gangScheduler`, or
    `allowPartialStart`."""
    gpus_per_node: Annotated[int, Field(ge=0, le=64)] | None = None
    """GPUs a pod. Unset: 8 for miles; 0 for native, which trains on CPUs and takes no other value."""
    gpu_product: Annotated[str, Field(pattern=r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$", max_length=63)] | None = (
        None
    )
    """Value of the node label `nvidia.com/gpu.product`. Unset: any GPU node."""
    node_selector: Annotated[dict[str, LabelValue], Field(max_length=16)] = Field(default_factory=dict)
    """Further labels that a node must have."""
    tolerations: Annotated[list[Toleration], Field(max_length=16)] = Field(default_factory=list)
    """Taints that the pods bear. `nvidia.com/gpu` is always among them where the pods ask for GPUs."""
    shared_memory: Quantity | None = None
    """Size of /dev/shm, which counts as memory of the pod. NCCL, data loaders and Ray's object store use it; too small
    ends in bus errors. Unset: the memory limit, else 64Gi with GPUs and 1Gi without."""
    rdma: Rdma | None = None
    """Cards for traffic between nodes. Unset: the pod network."""
    nccl: Nccl = nested(Nccl)
    """Communication between GPUs."""
    topology: TopologyHints = nested(TopologyHints)
    """Nearness of the pods."""
    priority_class_name: Name | None = None
    """PriorityClass of the pods, which the scheduler and the kubelet go by; Kueue goes by `spec.workloadPriorityClass`.
    Unset: the cluster's default."""
    service_account_name: Name | None = None
    """ServiceAccount of the pods, for volumes or clouds that go by it; it must exist. The operator binds it to the
    trainer's role. Unset: `harborrl-trainer`, which the operator makes."""
    config: FrameworkConfig = nested(FrameworkConfig)
    """Hyper-parameters under HarborFrameworkConfig's names."""
    max_seq_len: Annotated[int, Field(ge=2, le=1_000_000)] | None = None
    """Longest whole trajectory in tokens; a longer one ends as SequenceLengthLimitExceeded. Unset: the preset's, else
    65536."""
    recipe_args: RawText = ""
    """Engine flags, one or more a line, `#` begins a comment; ranks above `config`."""
    extra_args: RawText = ""
    """More engine flags; ranks above `recipeArgs`."""
    custom_config_yaml: RawText = ""
    """YAML mapping of engine arguments; ranks highest."""
    ports: Ports = nested(Ports)
    """Ports that agents reach."""
    env: Annotated[list[EnvVar], Field(max_length=128)] = Field(default_factory=list)
    """Environment of the Ray containers, preflight and driver; ours win over equal names. Secrets by `valueFrom`
    alone.
    """
    start_deadline_seconds: Seconds = 1800
    """Longest time from the first start of an attempt to a running trainer, queueing excluded; then a job of which
    nothing ever ran fails, and any other loses the attempt."""
    resources: Resources | None = None
    """Requests and limits of each trainer pod, GPUs excepted. Unset: none, so give memory on shared nodes."""
    allow_partial_start: bool = False
    """Let `nodes > 1` start without gang scheduling: some pods may hold their GPUs while others wait."""
    pod_overrides: FreeForm = Field(default_factory=dict)
    """Merged into every trainer pod's spec (objects merge, named things such as containers
    merge by name, other lists replace)."""
