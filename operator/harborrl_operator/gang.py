"""Which pods of a trainer are not there: named, so that a deadline says more than a count."""

from collections.abc import Sequence

from harborrl_operator.observed import Object, condition_of, is_terminating, name_of, pod_phase

MOST_NAMED = 8


def is_ready(pod: Object) -> bool:
    ready = condition_of(pod, "Ready")
    return not is_terminating(pod) and ready is not None and ready["status"] == "True"


def missing_pods(pods: Sequence[Object], wanted: int) -> str:
    """`x-head (Pending, on no node), 1 not created`; empty when all are ready."""
    waiting = [pod for pod in pods if not is_ready(pod)]
    named = [f"{name_of(pod)} ({_state(pod)})" for pod in sorted(waiting, key=name_of)[:MOST_NAMED]]
    if len(waiting) > MOST_NAMED:
        named.append(f"{len(waiting) - MOST_NAMED} more")
    absent = wanted - len(pods)
    if absent > 0:
        named.append(f"{absent} not created")
    return ", ".join(named)


def _state(pod: Object) -> str:
    if is_terminating(pod):
        return "ending"
    node = pod["spec"].get("nodeName")
    return f"{pod_phase(pod)}, {f'on {node}' if node else 'on no node'}"
