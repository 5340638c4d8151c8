"""Miles' own argument parser, asked by the preflight: a second container of its pod, trainer's image, without GPUs.

An init container of our image leaves the question and our half of the code (`harborrl_trainer.preflight.question`).
"""

import copy
from typing import Any

from harborrl_operator.constants import JOB_FILE, PARSER
from harborrl_operator.resolve import ResolvedJob
from harborrl_operator.resources.common import (
    SMALL_REQUESTS,
    config_mount,
    container_security,
    merged,
    named,
    storage_mounts,
    trainer_environment,
)
from harborrl_operator.resources.miles_code import CODE_DIR, code_mount, code_volume, copier, is_needed
from harborrl_operator.resources.placement import GPU_PRODUCT, PREFERENCE_WEIGHT, tolerations

RESOURCES = {"requests": {"cpu": "250m", "memory": "1Gi"}, "limits": {"memory": "8Gi"}}
"""Miles imports torch, Megatron and SGLang to make its parser. One that needs more is ended, and that is a remark."""

_FROM_RAY = ("env", "envFrom", "securityContext", "volumeMounts")

_NO_GPUS = {"NVIDIA_VISIBLE_DEVICES": "none", "CUDA_VISIBLE_DEVICES": ""}
"""CUDA images ask for all GPUs of their node by the first; `none` leaves the driver's libraries, which SGLang loads."""


def with_parser(job: ResolvedJob, attempt: int, pod: dict[str, Any]) -> dict[str, Any]:
    """The preflight's spec with the question, and with whom to ask."""
    if not is_needed(job):
        return pod
    asker = copier(job, "harborrl_trainer.preflight.question", {"requests": dict(SMALL_REQUESTS)})
    asker |= {
        "env": [{"name": "HARBORRL_JOB", "value": JOB_FILE}],
        "volumeMounts": [*asker["volumeMounts"], config_mount()],
    }
    parser = _parser(job, attempt)
    mounted = {mount["name"] for mount in parser["volumeMounts"]}
    theirs = [volume for volume in named(job.spec.trainer.pod_overrides, "volumes") if volume["name"] in mounted]
    return {
        **pod,
        "initContainers": [asker],
        "containers": [*pod["containers"], parser],
        "volumes": merged({"all": [*pod["volumes"], code_volume()]}, {"all": theirs})["all"],
        "tolerations": tolerations(job),
        "affinity": {**(pod.get("affinity") or {}), "nodeAffinity": _where_it_will_run(job)},
    }


def _parser(job: ResolvedJob, attempt: int) -> dict[str, Any]:
    module = "harborrl_trainer.miles_engine.parser_preflight"
    question, result = f"{CODE_DIR}/question.json", "/dev/termination-log"
    ours = {"PYTHONPATH": CODE_DIR, **_NO_GPUS}
    parser: dict[str, Any] = {
        "name": PARSER,
        "image": job.trainer_image,
        "imagePullPolicy": job.settings.image_pull_policy,
        "command": ["python3", "-m", module, question, result],
        "env": trainer_environment(job, attempt),
        "resources": copy.deepcopy(RESOURCES),
        "securityContext": container_security(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [code_mount(), *storage_mounts(job, ("models", "tasks"))],
    }
    parser = merged(parser, _of_ray(job))
    theirs = [variable for variable in parser["env"] if variable["name"] not in ours]
    return parser | {"env": [*theirs, *({"name": name, "value": value} for name, value in ours.items())]}


def _of_ray(job: ResolvedJob) -> dict[str, Any]:
    """What `trainer.podOverrides` gives the head's container and a parser can use.

    Miles asks the user's own functions for their flags and passes over one that it cannot import: without the volume
    that it lies on, its flags would be unknown, and a job that can run refused.
    """
    given = [one for one in named(job.spec.trainer.pod_overrides, "containers") if one["name"] == "ray-head"]
    return {field: given[0][field] for field in _FROM_RAY if field in given[0]} if given else {}


def _where_it_will_run(job: ResolvedJob) -> dict[str, Any]:
    """Preferred: nodes that will pull the image anyway, and have the architecture that it is made for."""
    trainer = job.spec.trainer
    wanted = dict(trainer.node_selector) | ({GPU_PRODUCT: trainer.gpu_product} if trainer.gpu_product else {})
    exact: list[dict[str, Any]] = [
        {"key": key, "operator": "In", "values": [value]} for key, value in sorted(wanted.items())
    ]
    terms = exact or [{"key": GPU_PRODUCT, "operator": "Exists"}]
    term = {"weight": PREFERENCE_WEIGHT, "preference": {"matchExpressions": terms}}
    return {"preferredDuringSchedulingIgnoredDuringExecution": [term]}
