"""Rules over the engines of their own that `--eval-num-gpus` gives to evaluation, beside training and rollout."""

from harborrl_trainer.launch.rules.rule import Rule, Values, both, count, number, on, without


def _too_many(values: Values) -> bool:
    """Ray would wait for GPUs that the job does not have, until its deadline, and hold all others."""
    if not on(values, "eval_num_gpus") or on(values, "rollout_external") or on(values, "debug_train_only"):
        return False
    fleet = count(values, "eval_num_gpus", 0)
    return bool(0 < values["gpus"] < values["training_gpus"] + values["rollout_gpus"] + fleet)


FLEET = (
    Rule(both("eval_num_gpus", "colocate"), "--eval-num-gpus cannot be used with --colocate; set colocate: false"),
    Rule(
        _too_many,
        "--eval-num-gpus {eval_num_gpus} come on top of {training_gpus} training and {rollout_gpus} rollout GPUs, and"
        " the job has {gpus}; set trainer.config.rolloutNumGpus so that the sum fits, or raise trainer.nodes beside it",
    ),
    Rule(
        lambda v: (
            on(v, "eval_num_gpus") and count(v, "eval_num_gpus", 0) % max(count(v, "eval_num_gpus_per_engine"), 1) != 0
        ),
        "--eval-num-gpus {eval_num_gpus} cannot be split into engines of --eval-num-gpus-per-engine"
        " {eval_num_gpus_per_engine}; set it to a multiple",
    ),
    Rule(without("eval_num_gpus", "eval_interval"), "--eval-num-gpus needs an evaluation; set eval.jsonl"),
    Rule(
        without("eval_num_gpus", "eval_hf_dir", "save_hf"),
        "--eval-num-gpus needs --eval-hf-dir or --save-hf, from which its engines load; add one",
    ),
    Rule(
        lambda v: any(name.startswith("eval_sglang_") for name in v) and number(v, "eval_num_gpus") <= 0,
        "--eval-sglang-* set up the engines of --eval-num-gpus, which is 0; set it, or remove them",
    ),
)
