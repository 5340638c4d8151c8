"""What is tried to prove that the cluster enforces NetworkPolicies, and what the tries prove: pure."""

from dataclasses import dataclass
from enum import Enum
from typing import Any

FLAG = "--unsafe-ignore-network-policy"


class Proof(Enum):
    """Whether restricted sandboxes are cut off, as seen from two pods that differ in their policy alone."""

    ENFORCED = "enforced"
    """The pod that may reach nobody reached nobody, and the other one did."""
    IGNORED = "ignored"
    """The pod that may reach nobody got through."""
    UNPROVEN = "unproven"
    """Neither got through, or nothing could be tried."""


@dataclass(frozen=True)
class Finding:
    proof: Proof
    message: str

    def refusal(self) -> str:
        """What a task is told whose network cannot be restricted."""
        what = {
            Proof.IGNORED: "this cluster does not enforce NetworkPolicies",
            Proof.UNPROVEN: "it is not proven that this cluster enforces NetworkPolicies",
        }.get(self.proof, "")
        return (
            f"{what} ({self.message}), so a task with a restricted network would not be restricted;"
            f" use a network plugin that enforces them, or accept it with {FLAG}"
        )


TRY = """
one() {
  if command -v nc >/dev/null 2>&1; then nc -w 2 "$1" "$2" </dev/null
  elif [ -x /bin/bash ]; then /bin/bash -c 'exec 3<>"/dev/tcp/$0/$1"' "$1" "$2"
  elif command -v python3 >/dev/null 2>&1; then
    python3 -c 'import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 2)' "$1" "$2"
  elif command -v perl >/dev/null 2>&1; then
    perl -MIO::Socket::INET -e 'exit !IO::Socket::INET->new(PeerAddr => "$ARGV[0]:$ARGV[1]", Timeout => 2)' "$1" "$2"
  else return 9; fi >/dev/null 2>&1
}
try() {
  one "$1" "$2" & p=$!
  ( sleep 3 && kill -9 $p ) >/dev/null 2>&1 & w=$!
  wait $p; r=$?
  kill -9 $w 2>/dev/null
  [ $r = 9 ] && exit 9
  [ $r = 0 ] && { echo "$1:$2"; exit 0; }
}
[ -z "$KUBERNETES_SERVICE_HOST" ] || try "$KUBERNETES_SERVICE_HOST" "$KUBERNETES_SERVICE_PORT"
while read -r key value rest; do
  [ "$key" != nameserver ] || try "$value" 53
done </etc/resolv.conf
exit 1
"""
"""Tries the API server's service address and the name servers, with what the image has. Exit code 0 and the address
that answered; 1: none did; 9: the image can connect to nothing, whatever the network."""

TRIED, NO_TOOL = (0, 1), 9


def judged(*, control: str | None, restricted: str | None, image: str) -> Finding:
    """From the addresses that the two pods reached at last."""
    if restricted is not None:
        return Finding(Proof.IGNORED, f"a pod that a policy cuts off reached {restricted}")
    if control is None:
        return Finding(Proof.UNPROVEN, f"a pod of {image} that a policy lets out reached nobody either")
    return Finding(Proof.ENFORCED, f"a pod that a policy cuts off reached nobody, one that may reached {control}")


EVERYWHERE: list[dict[str, Any]] = [{}]
"""Egress rules of the pod that must get through: where it is tried, the whole namespace may be denied."""
