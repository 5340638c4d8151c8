"""Rules over Miles' flags that fit a user's own reward or rollout function and end a run with HarborRL's."""

from harborrl_trainer.launch.rules.rule import Rule, Values, on

_OURS = "harborrl_trainer."
"""How our functions' paths begin."""


def _is_ours(values: Values, name: str) -> bool:
    return str(values.get(name) or _OURS).startswith(_OURS)


def our_rewards(values: Values) -> bool:
    """A reward is a number, or None for an aborted trial."""
    return _is_ours(values, "custom_rm_path")


def _miles_rollouts(values: Values) -> bool:
    """Ours hands on to Miles' own loops, which assert the data set."""
    return _is_ours(values, "rollout_function_path")


_NEEDS_ALL_REWARDS = "miles.rollout.filter_hub.dynamic_sampling_filters.check_reward_nonzero_std"
"""A tensor of a group's rewards, made where the synchronous loop catches nothing. Mode async drops aborted ones."""


def _filters_aborted(values: Values) -> bool:
    fits = our_rewards(values) and values["script"] == "train.py"
    return fits and values.get("dynamic_sampling_filter_path") == _NEEDS_ALL_REWARDS


OWN_FUNCTIONS = (
    Rule(
        _filters_aborted,
        "--dynamic-sampling-filter-path {dynamic_sampling_filter_path} fails on the first aborted trial, which has no"
        " reward, and ends the run in mode sync; remove it, set trainer.mode: async, or name a filter of your own that"
        " drops groups with aborted samples first",
    ),
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
