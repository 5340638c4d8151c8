"""How the trainer's pods speak to each other: RDMA devices, memory locking, NCCL's environment."""

from typing import Any

from harborrl_operator.models.shape import Nccl
from harborrl_operator.resolve import ResolvedJob

NETWORKS = "k8s.v1.cni.cncf.io/networks"
"""Annotation by which Multus attaches further networks to a pod."""


def devices(job: ResolvedJob) -> dict[str, int]:
    """Extended resources of each pod beside its GPUs."""
    rdma = job.spec.trainer.rdma
    return {rdma.resource: rdma.count} if rdma else {}


def network_annotations(job: ResolvedJob) -> dict[str, str]:
    rdma = job.spec.trainer.rdma
    return {NETWORKS: rdma.networks} if rdma and rdma.networks else {}


def capabilities(job: ResolvedJob) -> list[str]:
    """What the Ray containers need beyond none at all."""
    rdma = job.spec.trainer.rdma
    return ["IPC_LOCK"] if rdma and rdma.lock_memory else []


def environment(job: ResolvedJob) -> list[dict[str, Any]]:
    """NCCL and Gloo by preset; a variable that the user sets in `trainer.env` is the user's."""
    theirs = {variable.name for variable in job.spec.trainer.env}
    values = _variables(job.spec.trainer.nccl, preset(job)) if job.gpus_per_node else {}
    return [{"name": name, "value": value} for name, value in values.items() if name not in theirs]


def preset(job: ResolvedJob) -> str:
    """The preset in force; `auto` goes by the shape of the job."""
    wanted = job.spec.trainer.nccl.preset
    if wanted != "auto":
        return wanted
    if job.spec.trainer.nodes == 1:
        return "none"
    return "infiniband" if job.spec.trainer.rdma else "socket"


def _variables(nccl: Nccl, preset: str) -> dict[str, str]:
    if preset == "none":
        return {}
    common = {
        "NCCL_DEBUG": nccl.debug,
        "NCCL_SOCKET_IFNAME": nccl.interface,
        "GLOO_SOCKET_IFNAME": nccl.interface.lstrip("=^"),
    }
    if preset == "socket":
        return common | {"NCCL_IB_DISABLE": "1"}
    # 4.096 us x 2^22 = 17 s until a lost packet is an error: a link that flaps is back by then.
    cards = {"NCCL_IB_DISABLE": "0", "NCCL_IB_HCA": nccl.hca, "NCCL_IB_TIMEOUT": "22"}
    return common | cards | ({"NCCL_IB_GID_INDEX": str(nccl.gid_index)} if preset == "roce" else {})
