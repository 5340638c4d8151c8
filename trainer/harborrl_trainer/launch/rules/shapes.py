"""Rules over GPUs and the ways in which they are split."""

from harborrl_trainer.launch.rules.rule import Rule, count, on

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
        lambda v: (
            count(v, _PP) == 1
            and (on(v, "decoder_first_pipeline_num_layers") or on(v, "decoder_last_pipeline_num_layers"))
        ),
        "--decoder-first- and --decoder-last-pipeline-num-layers need a pipeline; set trainer.parallelism.pp above 1,"
        " or remove them",
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
)
