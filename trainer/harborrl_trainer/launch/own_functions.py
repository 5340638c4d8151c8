"""Rules over Miles' flags that fit a user's own reward or rollout function and end a run with HarborRL's."""

from harborrl_trainer.launch.context import FUNCTIONS
from harborrl_trainer.launch.rule import Rule, Values, on


def our_rewards(values: Values) -> bool:
    """A reward is a number, or None for an aborted trial."""
    return values.get("custom_rm_path") in (None, FUNCTIONS["reward"])


def _miles_rollouts(values: Values) -> bool:
    """Ours hands on to Miles' own loops, which assert the data set."""
    return values.get("rollout_function_path") in (None, FUNCTIONS["rollout"])


OWN_FUNCTIONS = (
    Rule(
        lambda v: our_rewards(v) and on(v, "reward_key"),
        "--reward-key {reward_key} looks into a reward, and HarborRL's is a number; remove it, and choose among several"
        " with agentServer.rewardKey",
    ),
    Rule(
        lambda v: our_rewards(v) and on(v, "eval_reward_key"),
        "--eval-reward-key {eval_reward_key} looks into a reward, and HarborRL's is a number; remove it, and choose"
        " among several with agentServer.rewardKey",
    ),
    Rule(
        lambda v: _miles_rollouts(v) and on(v, "disable_rollout_global_dataset"),
        "--disable-rollout-global-dataset: Miles' rollout loops take their prompts from that data set; remove it",
    ),
    Rule(
        lambda v: _miles_rollouts(v) and not on({"rollout_global_dataset": True, **v}, "rollout_global_dataset"),
        "rollout_global_dataset: {rollout_global_dataset}: Miles' rollout loops take their prompts from that data set;"
        " remove it",
    ),
)
