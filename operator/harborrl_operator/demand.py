"""I2: how many trials a job keeps in flight, and how many it sends at once, from every layer of its arguments."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harborrl_operator.arguments import RawArguments
from harborrl_operator.models import JobSpec

ASYNC_OVER_SAMPLING = 64
"""Groups that Miles' asynchronous launcher keeps begun when nothing says otherwise."""


@dataclass(frozen=True)
class Demand:
    """Trials at once; an agent server with fewer slots makes trials wait with their clock running."""

    prompts: int
    """Groups of a rollout."""
    samples: int
    """Trials of a group."""
    in_flight: int
    """In steady state."""
    formula: str
    """Where `in_flight` comes from, for messages."""
    refill: int
    """Most that are sent at once when dropped groups are replaced; `in_flight` when nothing is over-sampled."""


def demand_of(spec: JobSpec, config: Mapping[str, Any], raw: RawArguments) -> Demand:
    """The strongest layer wins: config < recipeArgs < extraArgs < customConfigYaml."""
    prompts = raw.counts.get("rollout_batch_size") or int(config["rolloutBatchSize"])
    samples = raw.counts.get("n_samples_per_prompt") or int(config["nSamplesPerPrompt"])
    over = raw.counts.get("over_sampling_batch_size")
    if spec.trainer.mode == "async":
        in_flight, formula = _asynchronous(spec, raw, prompts, samples, over)
        return Demand(prompts, samples, in_flight, formula, refill=in_flight)
    formula = f"rolloutBatchSize {prompts} x nSamplesPerPrompt {samples}"
    # A rollout that still lacks one group begins `over` more beside those that run.
    refill = (prompts - 1 + over) * samples if over else prompts * samples
    return Demand(prompts, samples, prompts * samples, formula, refill)


def _asynchronous(spec: JobSpec, raw: RawArguments, prompts: int, samples: int, over: int | None) -> tuple[int, str]:
    """In flight and its formula: the explicit bound, else the begun groups."""
    bound = raw.counts.get("async_max_concurrent_samples")
    if bound is not None:
        return bound, f"--async-max-concurrent-samples {bound}"
    usual = ASYNC_OVER_SAMPLING if spec.trainer.engine == "miles" else prompts
    groups = max(prompts, over or usual)
    named = f"rolloutBatchSize {groups}" if groups == prompts else f"--over-sampling-batch-size {groups}"
    return groups * samples, f"{named} x nSamplesPerPrompt {samples}"
