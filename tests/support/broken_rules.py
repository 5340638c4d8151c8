"""Jobs that break one rule of Miles or Megatron each, as changes of `launches.plain`, with what is said of them."""

from typing import Any

Changes = dict[str, Any]
ASYNC: Changes = {"mode": "async", "nodes": 2, "config__colocate": False}
LORA: Changes = {"rank": 8, "alpha": 16, "targetModules": ["q_proj"]}
NONZERO_STD = "miles.rollout.filter_hub.dynamic_sampling_filters.check_reward_nonzero_std"


def extra(flags: str, **changes: Any) -> Changes:
    return {"extraArgs": flags, **changes}


ADMISSION: list[tuple[Changes, str]] = [
    ({"config__globalBatchSize": 5}, "--global-batch-size 5 does not divide the 8 samples of a rollout"),
    (extra("--num-steps-per-rollout 2"), "wants --global-batch-size to be 8 // 2, not 8"),
    (extra("--over-sampling-batch-size 1"), "--over-sampling-batch-size 1 is below --rollout-batch-size 2"),
    (extra("--async-max-concurrent-samples 3"), "3 is below --n-samples-per-prompt 4"),
    ({"config__rolloutMaxResponseLen": 16384}, "16384, of one turn, fills the whole trajectory of --max-seq-len 16384"),
    (extra("--rollout-max-context-len 100 --rollout-max-prompt-len 100"), "100 must be below"),
    (extra("--eval-interval 0"), "--eval-interval 0 would be divided by"),
    (extra("--eval-interval 5"), "--eval-interval needs eval.jsonl"),
    (extra("--pause-generation-mode abort"), "use in_place or retract"),
    (extra("--recompute-logprobs-via-prefill"), "needs --true-on-policy-mode"),
    (extra("--kl-loss-coef 0.1", config__klCoef=0.1), "--kl-coef 0.1 puts the KL penalty into the reward"),
    (extra("--use-tis --use-rollout-logprobs"), "--use-rollout-logprobs and --use-tis exclude each other"),
    ({"config__advantageEstimator": "reinforce_plus_plus"}, "needs --normalize-advantages"),
    (extra("--get-mismatch-metrics"), "needs --custom-tis-function-path"),
    (
        extra("--megatron-to-hf-mode raw --advantage-estimator ppo --kl-coef 0.1", model__refLoad="/r"),
        "ppo takes no --kl-coef (0.1)",
    ),
    (
        ASYNC | extra("--megatron-to-hf-mode raw --advantage-estimator ppo", model__refLoad="/r"),
        "trains on samples of older weights",
    ),
    (extra("--use-opd"), "--use-opd needs --opd-type"),
    (extra("--enable-mtp-training"), "needs --mtp-num-layers"),
    (extra("--opd-teacher-load /t"), "--opd-teacher-load needs --use-opd"),
    (extra("--opd-teacher-urls a=http://t"), "--opd-teacher-urls needs --use-opd"),
    (extra("--use-opd --opd-type megatron"), "--opd-type megatron needs --opd-teacher-load"),
    (extra("--use-opd --opd-type sglang --opd-teacher-load /t"), "--opd-teacher-load cannot be used with --opd-type"),
    (extra("--use-opd --opd-type megatron --opd-teacher-load /t --opd-teacher-urls a=b"), "urls cannot be used with"),
    (ASYNC | extra("--update-weight-transfer-mode disk-delta"), "disk-delta needs --update-weight-disk-dir"),
    (
        ASYNC | extra("--update-weight-transfer-mode disk-delta --update-weight-disk-dir /d"),
        "disk-delta needs --update-weight-local-checkpoint-dir",
    ),
    (extra("--fully-async"), "runs under train_async.py alone"),
    (ASYNC | {"config__colocate": True}, "--colocate cannot be used in mode async"),
    (ASYNC | extra("--partial-rollout"), "--partial-rollout cannot be used in mode async"),
    (ASYNC | extra("--multi-lora-n-adapters 2"), "--multi-lora-n-adapters cannot be used in mode async"),
    (ASYNC | extra("--rollout-function-path a.b"), "--rollout-function-path cannot be used in mode async"),
    (
        ASYNC | extra("--recompute-logprobs-via-prefill --true-on-policy-mode"),
        "--recompute-logprobs-via-prefill cannot be used in mode async",
    ),
    (ASYNC | extra("--rollout-all-samples-process-path a.b"), "--rollout-all-samples-process-path cannot"),
    (extra("--pause-generation-mode in_place --update-weight-transfer-mode p2p"), "retract with p2p"),
    (extra("--update-weight-transfer-mode p2p"), "p2p cannot be used with --colocate"),
    (ASYNC | extra("--update-weight-transfer-mode p2p", lora=LORA), "p2p cannot be used with --lora-rank"),
    (ASYNC | extra("--update-weight-transfer-mode p2p --prefill-num-servers 1"), "p2p cannot be used with --prefill"),
    (extra("--update-weight-transfer-mode disk-delta"), "disk-delta cannot be used with --colocate"),
    (ASYNC | extra("--update-weight-transfer-mode disk-delta", lora=LORA), "disk-delta cannot be used with --lora"),
    (
        ASYNC | extra("--update-weight-transfer-mode disk-delta --prefill-num-servers 1"),
        "disk-delta cannot be used with --prefill",
    ),
    (extra("--sglang-config a.yaml --prefill-num-servers 1"), "--sglang-config and --prefill-num-servers exclude"),
    (extra("--mini-ft-controller-enable"), "needs --control-server-port"),
    (extra("--use-dynamic-batch-size"), "needs --max-tokens-per-gpu"),
    (extra("--use-dynamic-global-batch-size"), "needs --use-dynamic-batch-size and --max-tokens-per-gpu"),
    (extra("--balance-by-flops"), "--balance-by-flops needs --use-dynamic-batch-size"),
    (
        extra("--qkv-format bshd --use-dynamic-batch-size --max-tokens-per-gpu 8192"),
        "--qkv-format bshd takes no --use-dynamic-batch-size",
    ),
    (ASYNC | extra("--offload-train-target disk"), "needs --offload-train, which colocation implies"),
    (
        extra("--stream-optimizer-state-to-disk", lora=LORA),
        "--stream-optimizer-state-to-disk and --lora-rank exclude each other",
    ),
    (extra("--stream-optimizer-state-to-disk --optimizer-cpu-offload"), "and --optimizer-cpu-offload exclude"),
    (
        extra("--stream-optimizer-state-to-disk --use-precision-aware-optimizer"),
        "and --use-precision-aware-optimizer exclude",
    ),
    (
        extra("--rematerialize-param-from-master-weight", lora=LORA),
        "--rematerialize-param-from-master-weight and --lora-rank exclude",
    ),
    ({"parallelism": {"tp": 2, "cp": 3}}, "8 training GPUs cannot be split by tensor x pipeline x context"),
    ({"parallelism": {"ep": 16}}, "set trainer.parallelism.ep to a divisor of 8, or give 16 GPUs"),
    (extra("--decoder-first-pipeline-num-layers 3"), "set trainer.parallelism.pp above 1"),
    (extra("--rollout-num-gpus-per-engine 3"), "8 rollout GPUs cannot be split into engines"),
    (extra("--sglang-dp-size 2"), "--sglang-dp-size 2 needs --sglang-enable-dp-attention"),
    (extra("--debug-exit-after-rollout 1"), "--debug-exit-after-rollout 1 ends the run before its 3 rollouts"),
    (extra("--debug-rollout-only"), "--debug-rollout-only trains nothing"),
    (extra("--save-interval 0"), "--save-interval 0 would be divided by"),
    ({"customConfigYaml": "num_rollout: null"}, "num_rollout: None is no number of rollouts"),
    (extra("--reward-key score"), "--reward-key score looks into a reward"),
    ({"customConfigYaml": "eval_reward_key: score"}, "--eval-reward-key score looks into a reward"),
    (extra("--disable-rollout-global-dataset"), "--disable-rollout-global-dataset: Miles' rollout loops"),
    ({"customConfigYaml": "rollout_global_dataset: false"}, "rollout_global_dataset: False: Miles' rollout loops"),
    (extra(f"--dynamic-sampling-filter-path {NONZERO_STD}"), "fails on the first aborted trial"),
]
"""Judged at admission as well."""

MODEL: list[tuple[Changes, str]] = [
    ({"config__advantageEstimator": "ppo"}, "which --megatron-to-hf-mode bridge cannot load"),
    (
        {"model__path": "/mnt/models/GLM-4.7-Flash", "parallelism": {"ep": 3}, "nodes": 3},
        "--num-experts 64 cannot be split by --expert-model-parallel-size 3",
    ),
    ({"parallelism": {"ep": 2}}, "--expert-model-parallel-size 2 needs a model with experts"),
    (
        {"model__path": "/mnt/models/GLM-4.7-Flash", "parallelism": {"tp": 8}},
        "--num-attention-heads 20 cannot be split by --tensor-model-parallel-size 8",
    ),
    (
        {"model__path": "/mnt/models/Qwen2.5-0.5B", "parallelism": {"tp": 7}, "gpusPerNode": 7},
        "--num-query-groups 2 cannot be split by --tensor-model-parallel-size 7",
    ),
    ({"parallelism": {"pp": 8}}, "--num-layers 28 cannot be split by --pipeline-model-parallel-size 8"),
    ({"config__untieEmbeddingsAndOutputWeights": True}, "contradicts the model, which ties them"),
]
"""Judged where the model's architecture is known, by the launch alone."""
