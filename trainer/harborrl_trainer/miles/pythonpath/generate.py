"""`--custom-rm-path generate.reward_func`, `--rollout-function-path generate.RolloutFn`."""

from harborrl_trainer.miles.reward import reward_func
from harborrl_trainer.miles.rollout_fn import RolloutFn

__all__ = ["RolloutFn", "reward_func"]
