"""Who leads, read from the operator's Lease and its pods on the real cluster."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from harborrl_operator.elector import LEASE
from support.kube import LEASES, PODS, Kube, Manifest, name_of, status_of
from support.kubectl import SYSTEM


@dataclass(frozen=True)
class Leader:
    """One process life that holds, or held, the Lease."""

    lease: Manifest
    """As it was last seen with this holder."""
    pod: str
    container: str
    """Its id for the node's runtime."""

    @property
    def holder(self) -> str:
        return holder_of(self.lease)


def leader(kube: Kube) -> Leader:
    lease = kube.get(LEASES, LEASE, SYSTEM)
    assert lease is not None, f"no Lease {LEASE} in {SYSTEM}"
    pod = holder_of(lease).rpartition("_")[0]
    found = kube.get(PODS, pod, SYSTEM)
    assert found is not None, f"nobody leads: the Lease is held by {holder_of(lease)!r}"
    return Leader(lease, pod, _id(_operator(found)["containerID"]))


def successor(kube: Kube, old: Leader, *, timeout: float) -> tuple[Leader, Leader]:
    """The old leader as the Lease last showed it, and who follows, as soon as the Lease names another holder."""
    seen = [old.lease]

    def is_held_by_another(leases: list[Manifest]) -> bool:
        (lease,) = (one for one in leases if name_of(one) == LEASE)
        if holder_of(lease) not in ("", old.holder):
            return True
        seen.append(lease)
        return False

    kube.until(is_held_by_another, LEASES, SYSTEM, timeout=timeout)
    return Leader(seen[-1], old.pod, old.container), leader(kube)


def end_of(kube: Kube, old: Leader, *, timeout: float) -> dict[str, Any]:
    """How and when the process ended, in kubelet's words, as soon as it has."""
    found: list[dict[str, Any]] = []

    def has_ended(pods: list[Manifest]) -> bool:
        for pod in pods:
            if name_of(pod) == old.pod:
                status = _operator(pod)
                ends = [status.get(part, {}).get("terminated") or {} for part in ("state", "lastState")]
                found.extend(end for end in ends if _id(end.get("containerID", "")) == old.container)
        return bool(found)

    kube.until(has_ended, PODS, SYSTEM, timeout=timeout)
    return found[0]


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def holder_of(lease: Manifest) -> str:
    return str(lease.get("spec", {}).get("holderIdentity") or "")


def _operator(pod: Manifest) -> dict[str, Any]:
    statuses: list[dict[str, Any]] = status_of(pod).get("containerStatuses") or []
    return next(status for status in statuses if status["name"] == "operator")


def _id(container: str) -> str:
    return container.rpartition("/")[2]
