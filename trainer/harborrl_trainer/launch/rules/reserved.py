"""Flags that a job's other fields decide: written raw they would be overridden in silence, so they are refused."""

from collections.abc import Mapping

RESERVED: Mapping[str, str] = {
    "--save": "storage.checkpoints",
    "--load": "resumeFrom",
    "--start-rollout-id": "resumeFrom",
    "--ckpt-step": "resumeFrom",
    "--lora-adapter-path": "resumeFrom",
    "--finetune": "resumeFrom",
    "--no-load-optim": "resumeFrom",
    "--lora-rank": "trainer.lora",
    "--lora-alpha": "trainer.lora",
    "--target-modules": "trainer.lora",
    "--save-trigger-sentinel": "checkpoint",
    "--dump-details": "storage.traces",
    "--save-traces-dir": "storage.traces",
    "--save-debug-rollout-data": "storage.traces",
    "--save-debug-train-data": "storage.traces",
    "--save-debug-trajectory-data": "storage.traces",
    "--hf-checkpoint": "model.path",
    "--ref-load": "model.refLoad",
    "--prompt-data": "data",
    "--custom-config-path": "trainer.customConfigYaml",
    "--session-server-port": "trainer.ports.session",
    "--session-server-ip": "trainer.ports.session",
    "--use-session-server": "the agents that need it",
    "--sglang-router-port": "trainer.ports.router",
    "--sglang-router-ip": "trainer.ports.router",
    "--router-external-host": "the job's trainer Service",
    "--pin-rollout-manager-to-head": "the job's trainer Service",
    "--actor-num-nodes": "trainer.nodes and trainer.config.actorNodes",
    "--actor-num-gpus-per-node": "trainer.gpusPerNode",
    "--num-gpus-per-node": "trainer.gpusPerNode",
    "--rollout-num-gpus": "trainer.config.rolloutNumGpus",
    "--colocate": "trainer.config.colocate",
}
"""Flag -> what decides it. A job that names LoRA raw trains once, and is then refused on an adapter that it does not
know of; `--finetune` and `--no-load-optim` would make each resume forget the optimizer, behind a status that says it is
there; all checks look at `model.refLoad`."""


EVALUATION: Mapping[str, str] = {
    "--eval-interval": "eval.interval",
    "--eval-prompt-data": "eval.jsonl",
    "--n-samples-per-eval-prompt": "eval.samplesPerPrompt",
}
"""The same for a job with `spec.eval`."""


def reserved_flag(flag: str, *, evaluates: bool) -> str | None:
    """What decides it, or None where it is free; also for a beginning of its name, which argparse may complete.

    `evaluates`: whether the job has `spec.eval`.
    """
    wanted, homes = _flag(flag), _homes(evaluates=evaluates)
    if len(wanted) < len("--x"):
        return None
    return homes.get(wanted) or next((home for known, home in homes.items() if known.startswith(wanted)), None)


def reserved_key(key: str, *, evaluates: bool) -> str | None:
    """The same for a key of the YAML, which Miles sets by its full name."""
    return _homes(evaluates=evaluates).get(_flag(key))


def _homes(*, evaluates: bool) -> Mapping[str, str]:
    return {**RESERVED, **EVALUATION} if evaluates else RESERVED


def _flag(name: str) -> str:
    """In the letters of the command line."""
    return "--" + name.removeprefix("--").replace("_", "-")
