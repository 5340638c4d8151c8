"""Where a field is that stands in the wrong place: who comes from Miles brings the names of its flags and classes."""

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from harborrl_operator.miles_rules.reserved import RESERVED

HOMES: Mapping[str, str] = {
    **{flag.removeprefix("--").replace("-", "_"): home for flag, home in RESERVED.items()},
    "agent_import_path": "agentServer.agents",
    "agent_kwargs": "agentServer.agentKwargs",
    "context_parallel_size": "trainer.parallelism.cp",
    "environment_import_path": "agentServer.sandbox.backend",
    "eval_prompt_data": "eval.jsonl",
    "expert_model_parallel_size": "trainer.parallelism.ep",
    "expert_tensor_parallel_size": "trainer.parallelism.etp",
    "fully_async": "trainer.mode",
    "gpus_per_node": "trainer.gpusPerNode",
    "harbor_install_command": "agentServer.image",
    "image_run_commands": "trainer.image",
    "instruction_path": "data.tasks.instructionPath",
    "lora_alpha": "trainer.lora.alpha",
    "lora_rank": "trainer.lora.rank",
    "miles_image": "trainer.image",
    "n_nodes": "trainer.nodes",
    "n_samples_per_eval_prompt": "eval.samplesPerPrompt",
    "pipeline_model_parallel_size": "trainer.parallelism.pp",
    "preset": "trainer.preset",
    "ref_load": "model.refLoad",
    "sandbox_idle_timeout_secs": "agentServer.sandbox.idleTimeoutSeconds",
    "sandbox_timeout_secs": "agentServer.sandbox.timeoutSeconds",
    "target_modules": "trainer.lora.targetModules",
    "task_glob": "data.tasks.glob",
    "task_root": "data.tasks.root",
    "tensor_model_parallel_size": "trainer.parallelism.tp",
    "wandb_key": "trainer.env",
}
"""Argument of Miles or field of HarborFrameworkConfig, in snake_case -> what decides it, below `spec`."""

_USUAL: Mapping[str, str] = {"claim": "pvc", "claimName": "pvc", "persistentVolumeClaim": "pvc", "secretName": "name"}
"""What Kubernetes or our chart calls a thing -> what it is called here."""

_MOST = 2
"""Places that are worth naming: `image` and `name` stand everywhere."""


def advice(name: str, path: str, siblings: Mapping[str, Any], spec: Mapping[str, Any]) -> str:
    """What to do about `name` at `path`, which is no field there; `spec` is the schema of all fields."""
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).replace("-", "_").lower()
    camel = re.sub(r"_([a-z0-9])", lambda found: found[1].upper(), snake)
    meant = _USUAL.get(camel, camel)
    if meant in siblings:
        return f"did you mean {meant}?"
    if snake in HOMES:
        return f"{HOMES[snake]} decides it"
    places = [place for place in _fields(spec, "spec") if place.rpartition(".")[2] == camel]
    if 0 < len(places) <= _MOST:
        return f"it belongs to {' or '.join(places)}"
    near = difflib.get_close_matches(name, siblings, 1, 0.7)
    if near:
        return f"did you mean {near[0]}?"
    raw = ", or write it as a flag into spec.trainer.extraArgs" if path == "spec.trainer.config" else ""
    return f"remove it{raw}"


def _fields(schema: Mapping[str, Any], path: str) -> Iterator[str]:
    for name, part in schema.get("properties", {}).items():
        yield f"{path}.{name}"
        if not name.endswith("Ref"):  # name and key of other objects
            yield from _fields(part, f"{path}.{name}")
