"""Local disk for a preset that writes its paused trainer there: a volume of each trainer pod, bounded, not in memory.

In the container's own layer it would fill the node's disk without anybody's leave, and an image that is not root could
not make the directory.
"""

import math
from typing import Any

from harborrl_operator.miles_table import Scratch
from harborrl_operator.resolve import ResolvedJob, preset_of
from harborrl_operator.resources.common import named

NAME = "scratch"
"""Of the volume. One of this name in `trainer.podOverrides` is mounted in the place of ours, a node's NVMe say."""


def mounts(job: ResolvedJob) -> list[dict[str, Any]]:
    wanted = _wanted(job)
    return [{"name": NAME, "mountPath": wanted.path}] if wanted else []


def volumes(job: ResolvedJob) -> list[dict[str, Any]]:
    wanted = _wanted(job)
    theirs = [volume["name"] for volume in named(job.spec.trainer.pod_overrides, "volumes")]
    if wanted is None or NAME in theirs:
        return []
    share = math.ceil(wanted.gib / job.spec.trainer.nodes)
    return [{"name": NAME, "emptyDir": {"sizeLimit": f"{share}Gi"}}]


def _wanted(job: ResolvedJob) -> Scratch | None:
    preset = preset_of(job.spec)
    return preset.scratch if preset else None
