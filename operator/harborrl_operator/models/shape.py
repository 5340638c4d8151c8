"""Parts of `spec.trainer` that say on which machines the trainer runs and how its pods reach each other."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, JsonValue

from harborrl_operator.models.base import LINES, Model

_LABEL_KEY = r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"

LabelKey = Annotated[str, Field(pattern=f"^{_LABEL_KEY}$", max_length=317)]
"""Key of a node label, or name of an extended resource."""

LabelValue = Annotated[str, Field(pattern=r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$", max_length=63)]

Name = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=253)]


_TOLERATION_RULES: list[JsonValue] = [
    {
        "rule": "self.operator == 'Exists' || self.key != ''",
        "message": "a toleration without a key bears any taint and needs operator Exists: set it, or name the key",
    },
    {
        "rule": "self.operator != 'Exists' || self.value == ''",
        "message": "operator Exists takes no value: remove it, or use Equal",
    },
    {
        "rule": "!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",
        "message": "tolerationSeconds is for effect NoExecute alone: set that effect, or remove the seconds",
    },
]
"""What the API server says of the same in a pod, which here would be a trainer that cannot be made."""


class Toleration(Model):
    """A node taint that the trainer pods bear, as in a pod."""

    model_config = ConfigDict(json_schema_extra={"x-kubernetes-validations": _TOLERATION_RULES})

    key: Annotated[str, Field(max_length=317, json_schema_extra={"pattern": f"^({_LABEL_KEY})?$"})] = ""
    """Key of the taint. Empty with `operator: Exists`: any taint."""
    operator: Literal["Equal", "Exists"] = "Equal"
    """`Exists` ignores the value. Default Equal, as in a pod."""
    value: LabelValue = ""
    """Value of the taint, for `Equal`."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Effect of the taint. Unset: every effect."""
    toleration_seconds: Annotated[int, Field(ge=0, le=604_800)] | None = None
    """How long a pod stays on a node that got a `NoExecute` taint. Unset: for ever."""


class Rdma(Model):
    """Network cards that the pods use without the kernel; for `nodes > 1`, where NCCL is slow over plain sockets."""

    resource: LabelKey = "rdma/hca_shared_devices_a"
    """Extended resource of the device plugin. Default: the name in the plugin's own documentation."""
    count: Annotated[int, Field(ge=1, le=64)] = 1
    """How many of it each pod asks for. 1 for a shared device, 8 where each GPU has a card of its own."""
    networks: Annotated[str, Field(max_length=1024, json_schema_extra=LINES)] = ""
    """Value of the annotation `k8s.v1.cni.cncf.io/networks` (Multus), for cards that are attached as networks. Default:
    none."""
    lock_memory: bool = True
    """Add the capability IPC_LOCK, which registering memory needs. Pod security `baseline` and `restricted` refuse it:
    the job's namespace has to be `privileged`."""


class Nccl(Model):
    """Environment of NCCL and Gloo in the Ray containers; `trainer.env` ranks above it."""

    preset: Literal["auto", "infiniband", "roce", "socket", "none"] = "auto"
    """`infiniband` and `roce` use Mellanox cards; `socket` keeps NCCL off them; `none` sets nothing. Default auto:
    nothing for one node, whose GPUs speak over NVLink; `infiniband` for several with `rdma`, else `socket`."""
    interface: Annotated[str, Field(pattern=r"^[=^]?[A-Za-z0-9][-A-Za-z0-9_.,]*$", max_length=128)] = "eth0"
    """Network interface for the bootstrap, and for the data under `socket`. Default eth0: the pod network."""
    hca: Annotated[str, Field(pattern=r"^[=^]?[A-Za-z0-9][-A-Za-z0-9_.,:]*$", max_length=256)] = "mlx5"
    """Prefix or list of cards (NCCL_IB_HCA). Default mlx5: every Mellanox card."""
    gid_index: Annotated[int, Field(ge=0, le=255)] = 3
    """NCCL_IB_GID_INDEX under `roce`. Default 3: RoCE v2 over IPv4 on most cards."""
    debug: Literal["WARN", "INFO", "TRACE"] = "WARN"
    """NCCL_DEBUG. Default WARN: silent until something breaks; INFO prints the rings that were chosen."""


class TopologyHints(Model):
    """How near each other the pods of one job are placed; at most one of the two. Unset: anywhere."""

    required: LabelKey | None = None
    """Node label whose value all pods must share, for example a rack's. A job that does not fit waits."""
    preferred: LabelKey | None = None
    """The same as a wish. With `queueName` both are Kueue's topology-aware scheduling (the flavor needs a Topology),
    else pod affinity."""
