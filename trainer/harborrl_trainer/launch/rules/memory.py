"""Rules over dynamic batches and offloading."""

from harborrl_trainer.launch.rules.rule import Rule, Values, equals, excludes, on, without


def _offloads(values: Values) -> bool:
    """Asked for, or set by Miles itself: beside rollout on the same GPUs, and for the critic of PPO."""
    critic = equals("advantage_estimator", "ppo")(values) and not on(values, "no_offload_train")
    return critic or any(on(values, name) for name in ("colocate", "offload", "offload_train"))


MEMORY = (
    Rule(
        without("use_dynamic_batch_size", "max_tokens_per_gpu"),
        "--use-dynamic-batch-size needs --max-tokens-per-gpu; add it, for example 8192",
    ),
    Rule(
        without("use_dynamic_global_batch_size", "use_dynamic_batch_size", "multi_lora_n_adapters"),
        "--use-dynamic-global-batch-size needs --use-dynamic-batch-size and --max-tokens-per-gpu; add them",
    ),
    Rule(
        without("balance_by_flops", "use_dynamic_batch_size"),
        "--balance-by-flops needs --use-dynamic-batch-size; add it",
    ),
    Rule(
        lambda v: equals("qkv_format", "bshd")(v) and on(v, "use_dynamic_batch_size"),
        "--qkv-format bshd takes no --use-dynamic-batch-size; remove it and set microBatchSize",
    ),
    Rule(
        lambda v: equals("offload_train_target", "disk")(v) and not _offloads(v),
        "--offload-train-target disk needs --offload-train, which colocation implies; add it, or remove the flag",
    ),
    *excludes("stream_optimizer_state_to_disk", "lora_rank", "optimizer_cpu_offload", "use_precision_aware_optimizer"),
    *excludes("rematerialize_param_from_master_weight", "lora_rank"),
)
