"""All rules that admission and the launch have in common, and what they look at beside the arguments themselves.

Read in miles/utils/arguments.py at 31f1ca961 and 9a0036447, and in Megatron's validation. A rule speaks only about what
is known: a number that nobody told leaves it silent.
"""

from typing import Any

from harborrl_trainer.launch.rules.algorithm import ALGORITHM
from harborrl_trainer.launch.rules.batches import BATCHES
from harborrl_trainer.launch.rules.memory import MEMORY
from harborrl_trainer.launch.rules.modes import MODES
from harborrl_trainer.launch.rules.own_functions import OWN_FUNCTIONS
from harborrl_trainer.launch.rules.rule import Values, count, samples
from harborrl_trainer.launch.rules.shapes import SHAPES

RULES = (*BATCHES, *ALGORITHM, *MODES, *MEMORY, *SHAPES, *OWN_FUNCTIONS)


def with_derived(values: Values, *, script: str, training_gpus: int, rollout_gpus: int) -> dict[str, Any]:
    """`values` with what follows from them; a number of GPUs that is not known is 0."""
    pipeline = count(values, "pipeline_model_parallel_size")
    tensor, context = count(values, "tensor_model_parallel_size"), count(values, "context_parallel_size")
    expert, expert_tensor = count(values, "expert_model_parallel_size"), count(values, "expert_tensor_parallel_size")
    return {
        **values,
        "script": script,
        "samples": samples(values),
        "training_gpus": training_gpus,
        "rollout_gpus": rollout_gpus,
        "model_ways": max(tensor * pipeline * context, 1),
        "expert_ways": max(expert * expert_tensor * pipeline, 1),
    }
