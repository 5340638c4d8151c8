"""Where the sandbox of a task that asks for GPUs may run: pure."""

from collections.abc import Mapping
from typing import Any

from harbor.models.task.config import EnvironmentConfig

from harborrl_agent_server.errors import SandboxStartError
from harborrl_agent_server.sandboxes.images import SandboxConfig


def gpu_placement(task: EnvironmentConfig, config: SandboxConfig) -> dict[str, Any]:
    """Fields of the pod's spec: any type will do, or nodes of one of the types that the task names."""
    if not task.gpus or not task.gpu_types:
        return {}
    labels = labels_of(task.gpu_types, config.node_selector_for_gpu)
    if len(labels) == 1:
        return {"nodeSelector": config.node_selector | undisputed(labels[0], config.pod_overrides)}
    terms = [{"matchExpressions": [expression(key, value) for key, value in each.items()]} for each in labels]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"affinity": {"nodeAffinity": required}}


def undisputed(labels: dict[str, str], overrides: Mapping[str, Any]) -> dict[str, str]:
    """The same labels; raises `SandboxStartError` where the job's overrides would replace one."""
    if "nodeSelector" not in overrides:
        return labels
    said = overrides["nodeSelector"]
    for key, value in labels.items():
        other = said.get(key, value) if isinstance(said, Mapping) else None
        if other != value:
            raise SandboxStartError(
                "GpuTypeOverridden",
                f"the task's type of GPU is on nodes with {key}={value}, and the nodeSelector of agentServer.sandbox."
                f"podOverrides says {other if isinstance(said, Mapping) else said}; leave {key} out there",
            )
    return labels


def labels_of(types: list[str], known: Mapping[str, dict[str, str]]) -> list[dict[str, str]]:
    """Of each type that the cluster has; one is enough."""
    wanted = {name.lower() for name in types}
    found = [labels for name, labels in known.items() if name.lower() in wanted]
    if not found:
        raise SandboxStartError(
            "GpuTypeUnknown",
            f"the task wants a GPU of type {' or '.join(types)}, agentServer.sandbox.nodeSelectorForGpu names"
            f" {', '.join(sorted(known)) or 'none'}; add the labels of such nodes there",
        )
    return found


def expression(key: str, value: str) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": [value]}
