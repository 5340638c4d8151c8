"""Rules that need the model's architecture or the way to its weights, which the whole command line alone tells."""

from harborrl_trainer.launch.rules.rule import Rule, count, equals, on, ways

_TP, _PP = "tensor_model_parallel_size", "pipeline_model_parallel_size"
_EP = "expert_model_parallel_size"

MODEL = (
    Rule(
        lambda v: equals("advantage_estimator", "ppo")(v) and equals("megatron_to_hf_mode", "bridge")(v),
        "--advantage-estimator ppo has a critic, which --megatron-to-hf-mode bridge cannot load; set megatronToHfMode:"
        " raw with a converted model.refLoad, or another estimator",
    ),
    Rule(
        lambda v: on(v, "num_experts") and count(v, "num_experts") % ways(v, _EP) != 0,
        "--num-experts {num_experts} cannot be split by --expert-model-parallel-size {expert_model_parallel_size}; set"
        " trainer.parallelism.ep to a divisor of {num_experts}",
    ),
    Rule(
        lambda v: not on(v, "num_experts") and count(v, _EP) > 1,
        "--expert-model-parallel-size {expert_model_parallel_size} needs a model with experts; leave"
        " trainer.parallelism.ep out",
    ),
    Rule(
        lambda v: on(v, "num_attention_heads") and count(v, "num_attention_heads") % ways(v, _TP) != 0,
        "--num-attention-heads {num_attention_heads} cannot be split by --tensor-model-parallel-size"
        " {tensor_model_parallel_size}; set trainer.parallelism.tp to a divisor of {num_attention_heads}",
    ),
    Rule(
        lambda v: on(v, "num_query_groups") and count(v, "num_query_groups") % ways(v, _TP) != 0,
        "--num-query-groups {num_query_groups} cannot be split by --tensor-model-parallel-size"
        " {tensor_model_parallel_size}; set trainer.parallelism.tp to a divisor of {num_query_groups}",
    ),
    Rule(
        lambda v: (
            on(v, "num_layers", _PP)
            and not on(v, "decoder_first_pipeline_num_layers")
            and not on(v, "decoder_last_pipeline_num_layers")
            and count(v, "num_layers") % ways(v, _PP) != 0
        ),
        "--num-layers {num_layers} cannot be split by --pipeline-model-parallel-size {pipeline_model_parallel_size};"
        " set trainer.parallelism.pp to a divisor, or add --decoder-last-pipeline-num-layers",
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
