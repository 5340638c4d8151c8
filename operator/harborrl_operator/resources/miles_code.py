"""Our code in an image that is not ours: an init container of every Ray pod copies it into a volume.

Miles' image brings its own Python and packages, so only what runs on those is copied (`harborrl_trainer.miles_engine`);
the supervisor keeps to our image.
"""

from typing import Any

from harborrl_operator.resolve import ResolvedJob
from harborrl_operator.resources.common import container_security

CODE_DIR = "/opt/harborrl-code"
CODE_VARIABLE = "HARBORRL_CODE"
"""Tells the supervisor which directory to put on PYTHONPATH of Miles' processes (docs/contracts.md, "Miles")."""

_NAME = "code"


def is_needed(job: ResolvedJob) -> bool:
    return job.spec.trainer.engine == "miles"


def with_code(job: ResolvedJob, pod: dict[str, Any], resources: dict[str, Any]) -> dict[str, Any]:
    """The pod with the copy made before anything else starts, and mounted in its Ray container."""
    if not is_needed(job):
        return pod
    (ray,) = pod["containers"]
    mounted = {**ray, "volumeMounts": [*ray["volumeMounts"], code_mount()]}
    exporter = copier(job, "harborrl_trainer.miles_engine.export", resources)
    return {
        **pod,
        "initContainers": [exporter, *pod.get("initContainers", [])],
        "containers": [mounted],
        "volumes": [*pod["volumes"], code_volume()],
    }


def code_volume() -> dict[str, Any]:
    return {"name": _NAME, "emptyDir": {}}


def code_mount() -> dict[str, Any]:
    return {"name": _NAME, "mountPath": CODE_DIR, "readOnly": True}


def copier(job: ResolvedJob, module: str, resources: dict[str, Any]) -> dict[str, Any]:
    """`module` of our image fills CODE_DIR."""
    return {
        "name": _NAME,
        "image": job.settings.trainer_image,
        "imagePullPolicy": job.settings.image_pull_policy,
        "command": ["python", "-m", module, CODE_DIR],
        "resources": resources,
        "securityContext": container_security(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": _NAME, "mountPath": CODE_DIR}],
    }


def supervisor_environment(job: ResolvedJob) -> list[dict[str, Any]]:
    return [{"name": CODE_VARIABLE, "value": CODE_DIR}] if is_needed(job) else []
