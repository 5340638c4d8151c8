"""Labels of a trainer pod that somebody took off or changed: the pod is followed all the same, and it is said.

Without them no event of the pod wakes us, its network policy no longer lets it reach what it needs, and no disruption
budget protects it.
"""

from collections.abc import Iterable

from harborrl_operator.constants import LABEL_MANAGED_BY, Role
from harborrl_operator.models import HarborRLJob
from harborrl_operator.observed import Object, attempt_of, is_terminating, labels, name_of, ray_cluster_of


def lost_labels(pods: Iterable[Object], job: HarborRLJob) -> str:
    """The first such pod and the command that mends it, as a sentence; empty when all have theirs.

    Of pods that a RayCluster owns: what they were made with is known by its name.
    """
    for pod in pods:
        wanted = _wanted(pod, job)
        lost = {key: value for key, value in wanted.items() if labels(pod).get(key) != value}
        if lost and ray_cluster_of(pod) and not is_terminating(pod):
            named = " ".join(f"{key}={value}" for key, value in lost.items())
            return (
                f"Labels of pod {name_of(pod)} were taken off or changed; it is the job's all the same. Put them back:"
                f" kubectl -n {job.namespace} label pod {name_of(pod)} --overwrite {named}"
            )
    return ""


def _wanted(pod: Object, job: HarborRLJob) -> dict[str, str]:
    made_with = job.names.labels(Role.TRAINER, attempt_of(pod))
    return {key: value for key, value in made_with.items() if key != LABEL_MANAGED_BY}
