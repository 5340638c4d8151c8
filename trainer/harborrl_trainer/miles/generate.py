"""The names that Miles' arguments take: `harborrl_trainer.miles.generate.generate`, `.reward_func` and `.RolloutFn`."""

from harborrl_trainer.miles.reward import reward_func
from harborrl_trainer.miles.rollout_fn import RolloutFn
from harborrl_trainer.miles.wrapper import Generate

generate = Generate
"""A class, which Miles makes once; lower case, as the argument asks for a function."""

__all__ = ["RolloutFn", "generate", "reward_func"]
