"""Rules over a rollout's size, its lengths, its sessions and the two intervals."""

from harborrl_trainer.launch.rules.rule import Rule, Values, count, equals, flag, number, on, samples, set_to, without


def _uneven_steps(values: Values) -> bool:
    steps = count(values, "num_steps_per_rollout", 0)
    return steps > 0 and samples(values) // steps != count(values, "global_batch_size", 0)


BATCHES = (
    Rule(
        lambda v: samples(v) % max(count(v, "global_batch_size", 1), 1) != 0,
        "--global-batch-size {global_batch_size} does not divide the {samples} samples of a rollout"
        " (--rollout-batch-size {rollout_batch_size} x --n-samples-per-prompt {n_samples_per_prompt}); set it to"
        " {samples} or a divisor of it",
    ),
    Rule(
        _uneven_steps,
        "--num-steps-per-rollout {num_steps_per_rollout} wants --global-batch-size to be {samples} //"
        " {num_steps_per_rollout}, not {global_batch_size}; set it so, or leave --num-steps-per-rollout out",
    ),
    Rule(
        lambda v: 0 < number(v, "over_sampling_batch_size") < number(v, "rollout_batch_size"),
        "--over-sampling-batch-size {over_sampling_batch_size} is below --rollout-batch-size {rollout_batch_size}; set"
        " it to at least {rollout_batch_size}, or leave it out",
    ),
    Rule(
        lambda v: 0 < number(v, "async_max_concurrent_samples") < number(v, "n_samples_per_prompt"),
        "--async-max-concurrent-samples {async_max_concurrent_samples} is below --n-samples-per-prompt"
        " {n_samples_per_prompt}, and groups are sent whole; set it to at least {n_samples_per_prompt}",
    ),
    Rule(
        lambda v: number(v, "rollout_max_response_len") >= number(v, "max_seq_len", float("inf")),
        "--rollout-max-response-len {rollout_max_response_len}, of one turn, fills the whole trajectory of"
        " --max-seq-len {max_seq_len}; set trainer.maxSeqLen above it, or rolloutMaxResponseLen below",
    ),
    Rule(
        lambda v: (
            number(v, "rollout_max_context_len") > 0
            and number(v, "rollout_max_prompt_len") > number(v, "rollout_max_context_len") - 1
        ),
        "--rollout-max-prompt-len {rollout_max_prompt_len} must be below --rollout-max-context-len"
        " {rollout_max_context_len}; lower it",
    ),
    Rule(
        lambda v: v.get("eval_interval") is not None and not on(v, "eval_interval"),
        "--eval-interval {eval_interval} would be divided by; leave it out for no evaluation",
    ),
    Rule(
        lambda v: v.get("save_interval") is not None and number(v, "save_interval") < 1,
        "--save-interval {save_interval} would be divided by after the first step; set trainer.config.saveInterval to"
        " at least 1",
    ),
    Rule(
        lambda v: "num_rollout" in v and number(v, "num_rollout", -1) < 0,
        "num_rollout: {num_rollout} is no number of rollouts; remove it and set trainer.config.numRollout",
    ),
    Rule(
        lambda v: number(v, "debug_exit_after_rollout", float("inf")) < number(v, "num_rollout"),
        "--debug-exit-after-rollout {debug_exit_after_rollout} ends the run before its {num_rollout} rollouts; remove"
        " it, or set trainer.config.numRollout to {debug_exit_after_rollout}",
    ),
    Rule(
        lambda v: on(v, "debug_rollout_only"),
        "--debug-rollout-only trains nothing and leaves no checkpoint, and each attempt would begin anew; remove it",
    ),
    Rule(without("eval_interval", "eval_prompt_data", "eval_config"), "--eval-interval needs eval.jsonl; set it"),
    Rule(
        lambda v: "use_session_server" in v and v["use_session_server"] not in (True, "v1", "v2"),
        "--use-session-server {use_session_server} is no known version; use v1 or v2",
    ),
    *(
        Rule(
            set_to("use_session_server", "v2", name),
            f"{flag(name)} cannot be used with session server v2; remove it",
        )
        for name in ("group_rm", "partial_rollout", "recompute_logprobs_via_prefill")
    ),
    Rule(
        equals("pause_generation_mode", "abort"),
        "--pause-generation-mode abort cannot be used with the session server that agents need; use in_place or"
        " retract",
    ),
    Rule(
        without("recompute_logprobs_via_prefill", "true_on_policy_mode"),
        "--recompute-logprobs-via-prefill needs --true-on-policy-mode; add it, or remove the flag",
    ),
)
