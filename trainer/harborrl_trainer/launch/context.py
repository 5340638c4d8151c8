"""What all steps of a launch look at: the job with its version, preset, model type, adapters, sizes and names."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harborrl_trainer.errors import ConfigurationError
from harborrl_trainer.job import JobDocument, Lora
from harborrl_trainer.launch.models import ModelType, model_type
from harborrl_trainer.launch.presets import Preset, preset_named
from harborrl_trainer.launch.seam import Adjustment, Start
from harborrl_trainer.launch.sizing import SIZINGS, Shape, Sizes
from harborrl_trainer.launch.versions import MilesVersion, version_of

FUNCTIONS: Mapping[str, str] = {
    "generate": "harborrl_trainer.miles.generate.generate",
    "agent": "harborrl_trainer.miles.swe_agent_function.run",
    "reward": "harborrl_trainer.miles.generate.reward_func",
    "rollout": "harborrl_trainer.miles.generate.RolloutFn",
    "evaluation": "harborrl_trainer.miles.evaluation.only_scored",
}
"""Our functions in the places of the launchers' own."""

SCRATCH_MOUNT = "/scratch"
"""Node-local volume of a preset with `scratchGiB`, mounted by the operator; not in memory."""
SCRATCH = f"{SCRATCH_MOUNT}/miles_train_offload"
"""Directory of the LoRA preset's offloaded trainer."""

FP8_CONFIG = "sglang_fp8_rollout.yaml"


@dataclass(frozen=True)
class Context:
    """Read once from the job."""

    job: JobDocument
    start: Start
    version: MilesVersion
    preset: Preset | None
    model: ModelType | None
    lora: Lora | None
    sizes: Sizes
    adjustments: tuple[Adjustment, ...]

    @property
    def script(self) -> str:
        if self.preset:
            return self.preset.script
        return "train_async.py" if self.job.mode == "async" else "train.py"

    @property
    def names(self) -> dict[str, object]:
        """Values of the presets' `{names}`."""
        job, start, model, ports = self.job, self.start, self.model, self.job.ports
        sessions = (ports.session, ports.session + ports.session_count)
        return {
            **self.sizes,
            **FUNCTIONS,
            "name": job.job.name,
            "model": job.model.path,
            "refLoad": job.model.ref_load,
            "save": start.checkpoints,
            "traces": start.traces,
            "promptData": job.data.jsonl or start.files / "prompts.jsonl",
            "maxSeqLen": job.max_seq_len,
            "routerPort": ports.router,
            "sessionPort": ports.session if ports.session_count == 1 else sessions,
            "tito": model.tito if model else "default",
            "toolCallParser": model.tool_call_parser if model else None,
            "reasoningParser": model.reasoning_parser if model else None,
            "scratch": SCRATCH,
            "sglangConfig": start.files / FP8_CONFIG,
            **(_adapter_names(self.lora) if self.lora else {}),
        }

    @property
    def served(self) -> Path | None:
        """The quantised copy that the LoRA preset's engines load, beside the model; None: the model itself."""
        lora = self.preset is not None and self.preset.sizing == "lora"
        return Path(f"{self.job.model.path}-FP8") if lora else None

    @property
    def files(self) -> dict[str, str]:
        """Which model the engines load, where it is not the job's own."""
        if self.served is None:
            return {}
        world = self.job.nodes * self.job.gpus_per_node
        served: dict[str, Any] = {
            "name": "default",
            "model_path": str(self.served),
            "update_weights": True,
            "server_groups": [{"worker_type": "regular", "num_gpus": world}],
        }
        # JSON is YAML, and needs no writer of our own.
        return {str(self.start.files / FP8_CONFIG): json.dumps({"sglang": [served]}, indent=1) + "\n"}


def context_of(job: JobDocument, start: Start) -> Context:
    version, notes = version_of(
        job.config.miles_src_commit, job.image, explicit="milesSrcCommit" in job.explicit_config
    )
    preset = preset_named(job.preset, version) if job.preset else None
    if preset and preset.mode != job.mode:
        raise ConfigurationError(
            f"trainer.mode: preset {preset.name} runs in mode {preset.mode} and the job says {job.mode}; set"
            f" trainer.mode: {preset.mode}"
        )
    if job.mode == "async" and not version.knows("--fully-async"):
        raise ConfigurationError(
            f"trainer.mode: async needs --fully-async, which Miles {version.short} does not know; set trainer.mode:"
            " sync, or an image with a newer Miles"
        )
    if job.ports.session_count > 1 and not version.port_range:
        raise ConfigurationError(
            f"trainer.ports.sessionCount: Miles {version.short} runs one session server and {job.ports.session_count}"
            " are asked for; set it to 1, or an image with a newer Miles"
        )
    model, more = model_type(job.model.type, preset.model_type if preset else None, job.model.path)
    return Context(
        job=job,
        start=start,
        version=version,
        preset=preset,
        model=model,
        lora=job.lora or (Lora.model_validate(preset.lora) if preset and preset.lora else None),
        sizes=_sizes(job, preset, model),
        adjustments=(*notes, *more),
    )


def training_gpus(job: JobDocument) -> int:
    """Ranks of Megatron, each of which saves an adapter's file of its own; 0 where the job asks for no GPUs."""
    if not job.gpus_per_node:
        return 0
    context = context_of(job, Start(attempt=1, incarnation=1, traces=Path(), checkpoints=Path(), files=Path()))
    return (context.sizes["actorNodes"] or 1) * job.gpus_per_node


def _sizes(job: JobDocument, preset: Preset | None, model: ModelType | None) -> Sizes:
    asked = {name: size for name, size in (job.parallelism.model_dump() if job.parallelism else {}).items() if size}
    given = {**(preset.parallelism if preset else dict.fromkeys(("tp", "pp", "cp", "ep", "etp"), 1)), **asked}
    explicit = set(job.explicit_config)
    shape = Shape(
        nodes=job.nodes,
        gpus_per_node=job.gpus_per_node,
        colocate=job.config.colocate,
        actor_nodes=job.config.actor_nodes if "actorNodes" in explicit else None,
        rollout_gpus=job.config.rollout_num_gpus,
        parallelism=given,
        experts=model.experts if model else 0,
    )
    return SIZINGS[preset.sizing if preset else "fixed"](shape)


def _adapter_names(lora: Lora) -> dict[str, object]:
    if not float(lora.alpha).is_integer():
        raise ConfigurationError(
            f"trainer.lora.alpha: Miles takes a whole number and this is {lora.alpha}; set it to {round(lora.alpha)}"
        )
    return {"loraRank": lora.rank, "loraAlpha": int(lora.alpha), "loraTargets": ",".join(lora.target_modules)}
