"""Rules of Miles and Megatron that can be known ahead, over the whole command line: breaking one ends a run at once.

Read in miles/utils/arguments.py at 31f1ca961 and 9a0036447, and in Megatron's validation. A rule speaks only about what
is known. Its text names the flag, the numbers and the smallest change.
"""

from collections.abc import Callable
from typing import Any

from harborrl_trainer.launch.context import Context
from harborrl_trainer.launch.own_functions import OWN_FUNCTIONS
from harborrl_trainer.launch.rule import Rule, Values, count, number, on


def samples(values: Values) -> int:
    return count(values, "rollout_batch_size", 0) * count(values, "n_samples_per_prompt")


def _is(name: str, value: str) -> Callable[[Values], bool]:
    return lambda values: values.get(name) == value


def _both(*names: str) -> Callable[[Values], bool]:
    return lambda values: on(values, *names)


def _set_to(name: str, value: str, other: str) -> Callable[[Values], bool]:
    return lambda values: values.get(name) == value and on(values, other)


def _without(name: str, *needed: str) -> Callable[[Values], bool]:
    return lambda values: on(values, name) and not any(on(values, need) for need in needed)


def _excludes(name: str, *others: str) -> tuple[Rule, ...]:
    return tuple(
        Rule(_both(name, other), f"{_flag(name)} and {_flag(other)} exclude each other; remove one") for other in others
    )


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _async_excludes(*names: str) -> tuple[Rule, ...]:
    return tuple(
        Rule(
            _both("fully_async", name),
            f"{_flag(name)} cannot be used in mode async (--fully-async); remove it, or set trainer.mode: sync",
        )
        for name in names
    )


def _asynchronous_ppo(values: Values) -> bool:
    corrected = any(on(values, name) for name in ("use_rollout_logprobs", "use_tis", "keep_old_actor"))
    return values["script"] == "train_async.py" and values.get("advantage_estimator") == "ppo" and not corrected


def _uneven_steps(values: Values) -> bool:
    steps = count(values, "num_steps_per_rollout", 0)
    return steps > 0 and samples(values) // steps != count(values, "global_batch_size", 0)


ROLLOUT = (
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
        lambda v: "eval_interval" in v and not on(v, "eval_interval"),
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
    Rule(_without("eval_interval", "eval_prompt_data", "eval_config"), "--eval-interval needs eval.jsonl; set it"),
    Rule(
        lambda v: "use_session_server" in v and v["use_session_server"] not in (True, "v1", "v2"),
        "--use-session-server {use_session_server} is no known version; use v1 or v2",
    ),
    *(
        Rule(
            _set_to("use_session_server", "v2", name),
            f"{_flag(name)} cannot be used with session server v2; remove it",
        )
        for name in ("group_rm", "partial_rollout", "recompute_logprobs_via_prefill")
    ),
    Rule(
        _is("pause_generation_mode", "abort"),
        "--pause-generation-mode abort cannot be used with the session server that agents need; use in_place or"
        " retract",
    ),
    Rule(
        _without("recompute_logprobs_via_prefill", "true_on_policy_mode"),
        "--recompute-logprobs-via-prefill needs --true-on-policy-mode; add it, or remove the flag",
    ),
)

ALGORITHM = (
    Rule(
        lambda v: number(v, "kl_coef") != 0 and number(v, "kl_loss_coef") != 0,
        "--kl-coef {kl_coef} puts the KL penalty into the reward and --kl-loss-coef {kl_loss_coef} into the loss; set"
        " one of them to 0",
    ),
    *_excludes("use_rollout_logprobs", "use_tis"),
    Rule(
        lambda v: (
            str(v.get("advantage_estimator", "")).startswith("reinforce_plus_plus")
            and not on(v, "normalize_advantages")
        ),
        "--advantage-estimator {advantage_estimator} needs --normalize-advantages; set normalizeAdvantages: true",
    ),
    Rule(
        _without("get_mismatch_metrics", "custom_tis_function_path"),
        "--get-mismatch-metrics needs --custom-tis-function-path; add it, or remove the flag",
    ),
    Rule(
        lambda v: _is("advantage_estimator", "ppo")(v) and _is("megatron_to_hf_mode", "bridge")(v),
        "--advantage-estimator ppo has a critic, which --megatron-to-hf-mode bridge cannot load; set megatronToHfMode:"
        " raw with a converted model.refLoad, or another estimator",
    ),
    Rule(
        lambda v: _is("advantage_estimator", "ppo")(v) and on(v, "kl_coef"),
        "--advantage-estimator ppo takes no --kl-coef ({kl_coef}); use --use-kl-loss instead",
    ),
    Rule(
        _asynchronous_ppo,
        "--advantage-estimator ppo in mode async trains on samples of older weights; add --use-tis,"
        " --use-rollout-logprobs or --keep-old-actor",
    ),
    Rule(_without("use_opd", "opd_type"), "--use-opd needs --opd-type sglang or megatron; add it"),
    Rule(_without("enable_mtp_training", "mtp_num_layers"), "--enable-mtp-training needs --mtp-num-layers; add it"),
)

MODES = (
    Rule(
        lambda v: v["script"] == "train.py" and on(v, "fully_async"),
        "--fully-async runs under train_async.py alone; set trainer.mode: async",
    ),
    Rule(
        lambda v: v["script"] == "train_async.py" and on(v, "colocate"),
        "--colocate cannot be used in mode async; leave trainer.config.colocate out, or set trainer.mode: sync",
    ),
    *_async_excludes(
        "partial_rollout",
        "multi_lora_n_adapters",
        "rollout_function_path",
        "recompute_logprobs_via_prefill",
        "rollout_all_samples_process_path",
    ),
    Rule(
        lambda v: _is("pause_generation_mode", "in_place")(v) and _is("update_weight_transfer_mode", "p2p")(v),
        "--pause-generation-mode in_place and --update-weight-transfer-mode p2p exclude each other; use broadcast with"
        " in_place, or retract with p2p",
    ),
    *(
        Rule(
            _set_to("update_weight_transfer_mode", mode, other),
            f"--update-weight-transfer-mode {mode} cannot be used with {_flag(other)}; use broadcast",
        )
        for mode in ("p2p", "disk-delta")
        for other in ("colocate", "lora_rank", "prefill_num_servers")
    ),
    *_excludes("sglang_config", "prefill_num_servers"),
    Rule(
        _without("mini_ft_controller_enable", "control_server_port"),
        "--mini-ft-controller-enable needs --control-server-port; add it",
    ),
)

MEMORY = (
    Rule(
        _without("use_dynamic_batch_size", "max_tokens_per_gpu"),
        "--use-dynamic-batch-size needs --max-tokens-per-gpu; add it, for example 8192",
    ),
    Rule(
        _without("use_dynamic_global_batch_size", "use_dynamic_batch_size", "multi_lora_n_adapters"),
        "--use-dynamic-global-batch-size needs --use-dynamic-batch-size and --max-tokens-per-gpu; add them",
    ),
    Rule(
        _without("balance_by_flops", "use_dynamic_batch_size"),
        "--balance-by-flops needs --use-dynamic-batch-size; add it",
    ),
    Rule(
        lambda v: _is("qkv_format", "bshd")(v) and on(v, "use_dynamic_batch_size"),
        "--qkv-format bshd takes no --use-dynamic-batch-size; remove it and set microBatchSize",
    ),
    Rule(
        lambda v: _is("offload_train_target", "disk")(v) and not on(v, "colocate") and not on(v, "offload_train"),
        "--offload-train-target disk needs --offload-train, which colocation implies; add it, or remove the flag",
    ),
    *_excludes("stream_optimizer_state_to_disk", "lora_rank", "optimizer_cpu_offload", "use_precision_aware_optimizer"),
    *_excludes("rematerialize_param_from_master_weight", "lora_rank"),
)

_TP, _PP, _CP = "tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size"
_EP, _ETP = "expert_model_parallel_size", "expert_tensor_parallel_size"

SHAPES = (
    Rule(
        lambda v: v["training_gpus"] % v["model_ways"] != 0,
        "{training_gpus} training GPUs cannot be split by tensor x pipeline x context parallel size = {model_ways}; set"
        " trainer.parallelism so that the product divides them, or trainer.nodes or gpusPerNode to a multiple",
    ),
    Rule(
        lambda v: v["training_gpus"] % v["expert_ways"] != 0,
        "{training_gpus} training GPUs cannot be split by expert x expert tensor x pipeline parallel size ="
        " {expert_ways}; set trainer.parallelism.ep to a divisor of {training_gpus}, or give {expert_ways} GPUs",
    ),
    Rule(
        lambda v: on(v, "num_experts") and count(v, "num_experts") % count(v, _EP) != 0,
        "--num-experts {num_experts} cannot be split by --expert-model-parallel-size {expert_model_parallel_size}; set"
        " trainer.parallelism.ep to a divisor of {num_experts}",
    ),
    Rule(
        lambda v: not on(v, "num_experts") and count(v, _EP) > 1,
        "--expert-model-parallel-size {expert_model_parallel_size} needs a model with experts; leave"
        " trainer.parallelism.ep out",
    ),
    Rule(
        lambda v: on(v, "num_attention_heads") and count(v, "num_attention_heads") % count(v, _TP) != 0,
        "--num-attention-heads {num_attention_heads} cannot be split by --tensor-model-parallel-size"
        " {tensor_model_parallel_size}; set trainer.parallelism.tp to a divisor of {num_attention_heads}",
    ),
    Rule(
        lambda v: on(v, "num_query_groups") and count(v, "num_query_groups") % count(v, _TP) != 0,
        "--num-query-groups {num_query_groups} cannot be split by --tensor-model-parallel-size"
        " {tensor_model_parallel_size}; set trainer.parallelism.tp to a divisor of {num_query_groups}",
    ),
    Rule(
        lambda v: (
            count(v, _PP) == 1
            and (on(v, "decoder_first_pipeline_num_layers") or on(v, "decoder_last_pipeline_num_layers"))
        ),
        "--decoder-first- and --decoder-last-pipeline-num-layers need a pipeline; set trainer.parallelism.pp above 1,"
        " or remove them",
    ),
    Rule(
        lambda v: (
            on(v, "num_layers", _PP)
            and not on(v, "decoder_first_pipeline_num_layers")
            and not on(v, "decoder_last_pipeline_num_layers")
            and count(v, "num_layers") % count(v, _PP) != 0
        ),
        "--num-layers {num_layers} cannot be split by --pipeline-model-parallel-size {pipeline_model_parallel_size};"
        " set trainer.parallelism.pp to a divisor, or add --decoder-last-pipeline-num-layers",
    ),
    Rule(
        lambda v: v["rollout_gpus"] % max(count(v, "rollout_num_gpus_per_engine"), 1) != 0,
        "{rollout_gpus} rollout GPUs cannot be split into engines of --rollout-num-gpus-per-engine"
        " {rollout_num_gpus_per_engine}; set it to a divisor of {rollout_gpus}",
    ),
    Rule(
        lambda v: count(v, "sglang_dp_size") > 1 and not on(v, "sglang_enable_dp_attention"),
        "--sglang-dp-size {sglang_dp_size} needs --sglang-enable-dp-attention; add it",
    ),
    Rule(
        lambda v: v["tied"] is True and on(v, "untie_embeddings_and_output_weights"),
        "--untie-embeddings-and-output-weights contradicts the model, which ties them; leave"
        " untieEmbeddingsAndOutputWeights out",
    ),
    Rule(
        lambda v: v["tied"] is False and not on(v, "untie_embeddings_and_output_weights"),
        "the model has separate embeddings, and untieEmbeddingsAndOutputWeights: false contradicts it; leave it out",
    ),
)

RULES = (*ROLLOUT, *ALGORITHM, *MODES, *MEMORY, *SHAPES, *OWN_FUNCTIONS)


def first_broken(values: Values, context: Context) -> str | None:
    """The sentence of the first rule that the values break."""
    known = {**values, **_derived(values, context)}
    for rule in RULES:
        if rule.broken(known):
            return "trainer: " + rule.says.format_map(_Shown(known))
    return None


def _derived(values: Values, context: Context) -> dict[str, Any]:
    training = (context.sizes["actorNodes"] or 1) * context.job.gpus_per_node
    return {
        "script": context.script,
        "samples": samples(values),
        "training_gpus": training,
        "rollout_gpus": training if on(values, "colocate") else context.sizes["rolloutGpus"] or training,
        "model_ways": max(count(values, _TP) * count(values, _PP) * count(values, _CP), 1),
        "expert_ways": max(count(values, _EP) * count(values, _ETP) * count(values, _PP), 1),
        "tied": context.model.tied if context.model else None,
    }


class _Shown(dict[str, Any]):
    def __missing__(self, name: str) -> str:
        return "(unset)"
