"""`generate.reward_func` and `generate.RolloutFn`, as Miles' example names them; and `generate.generate`."""

from harborrl_trainer.miles.generate import RolloutFn, generate, reward_func

__all__ = ["RolloutFn", "generate", "reward_func"]
