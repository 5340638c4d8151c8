"""What Kueue writes: Workloads with the conditions that were seen on 0.19.2."""

from typing import Any

from support import hrl

FULL = (
    "couldn't assign flavors to pod set head: insufficient unused quota for nvidia.com/gpu in flavor h200,"
    " 8 more needed"
)
ABSENT = "LocalQueue gpus doesn't exist"
PREEMPTED = "Preempted to accommodate a workload (UID: a89, JobUID: 4b4) due to prioritization in the ClusterQueue"


def condition(kind: str, status: str, reason: str, message: str = "", *, since: float = 5) -> dict[str, Any]:
    changed = {"lastTransitionTime": hrl.ago(since)}
    return {"type": kind, "status": status, "reason": reason, "message": message, **changed}


def waiting(message: str = FULL) -> list[dict[str, Any]]:
    return [condition("QuotaReserved", "False", "Pending", message)]


def admitted(since: float = 5) -> list[dict[str, Any]]:
    return [
        condition("QuotaReserved", "True", "QuotaReserved", "Quota reserved in ClusterQueue gpus", since=since),
        condition("Admitted", "True", "Admitted", "The workload is admitted", since=since),
    ]


def preempted() -> list[dict[str, Any]]:
    evicted = condition("Evicted", "True", "Preempted", PREEMPTED)
    return [*waiting(), evicted, condition("Admitted", "False", "NoReservation")]


def workload(conditions: list[dict[str, Any]], *, active: bool = True, **status: Any) -> dict[str, Any]:
    meta = {"name": "raycluster-quickstart-a1-1752e", "namespace": "research"}
    return {"metadata": meta, "spec": {"active": active}, "status": {"conditions": conditions, **status}}
