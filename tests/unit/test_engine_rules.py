"""What Miles' own parser would refuse at the run's first line is refused before anything is held."""

from typing import Any

import pytest

from support import hrl

MILES: dict[str, Any] = {"trainer.engine": "miles", "trainer.nodes": 2, "trainer.gpusPerNode": 8}
ASYNC = {
    "trainer.mode": "async",
    "agentServer.maxConcurrent": 1000,
    "trainer.image": "registry.example/miles:august",
    "trainer.config.milesSrcCommit": "31f1ca961a94cb860cec3b2dea34ec332bfa8f76",
}

LONG: dict[str, Any] = {"trainer.config": {}, "trainer.maxSeqLen": 65536}
"""As a preset's answers of 8192 tokens need it."""

BROKEN: list[tuple[dict[str, Any], str]] = [
    (
        {"trainer.extraArgs": "--over-sampling-batch-size 1"},
        "trainer: --over-sampling-batch-size 1 is below --rollout-batch-size 2; set it to at least 2, or leave it out.",
    ),
    ({"trainer.config.klCoef": 0.1, "trainer.extraArgs": "--kl-loss-coef 0.01"}, "--kl-coef 0.1"),
    ({"trainer.config.advantageEstimator": "reinforce_plus_plus_baseline"}, "needs --normalize-advantages"),
    ({"trainer.customConfigYaml": "eval_interval: 5"}, "--eval-interval needs eval.jsonl; set it"),
    ({"trainer.customConfigYaml": "num_rollout: null"}, "num_rollout: None is no number"),
    ({"trainer.extraArgs": "--pause-generation-mode=in_place --update-weight-transfer-mode p2p"}, "retract with p2p"),
    (
        {"trainer.config.evalInterval": 5, "eval": {"jsonl": "e.jsonl"}},
        "evalInterval is 5 and eval.interval 20 (20 where it is left out). Leave trainer.config.evalInterval out",
    ),
    ({"trainer.config.evalInterval": 0, "eval": {"jsonl": "e.jsonl"}}, "Leave spec.eval out"),
    ({"trainer.extraArgs": "--fully-async"}, "set trainer.mode: async"),
    (ASYNC | {"trainer.config.colocate": True}, "--colocate cannot be used in mode async"),
    (ASYNC | {"trainer.extraArgs": "--rollout-function-path a.b"}, "--rollout-function-path cannot"),
    ({"trainer.parallelism": {"tp": 4, "pp": 2, "cp": 4}}, "16 training GPUs cannot be split by tensor x pipeline"),
    ({"trainer.parallelism": {"ep": 12}}, "16 training GPUs cannot be split by expert"),
]


@pytest.mark.parametrize(("changes", "says"), BROKEN, ids=[says for _, says in BROKEN])
def test_is_refused_with_the_rule_and_the_way_out(changes: dict[str, Any], says: str) -> None:
    decided = hrl.decide(hrl.job(MILES | changes), hrl.world())
    assert hrl.condition(decided, "Admitted") == ("False", "ArgumentConflict")
    assert says in hrl.message(decided, "Admitted")
    assert decided.apply == ()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"trainer.extraArgs": "--over-sampling-batch-size 2"},
        {"trainer.extraArgs": "--num-steps-per-rollout 2 --global-batch-size 4"},
        {"trainer.extraArgs": "--kl-loss-coef 0.01"},
        {"trainer.extraArgs": "--kl-loss-coef 0.00", "trainer.config.klCoef": 0.1},
        {"trainer.config.advantageEstimator": "reinforce_plus_plus", "trainer.config.normalizeAdvantages": True},
        {"trainer.config.evalInterval": 20, "eval": {"jsonl": "e.jsonl"}},
        {"trainer.config.evalInterval": 0},
        {"trainer.extraArgs": "--eval-interval 5 --eval-prompt-data e /data/e.jsonl"},
        {"trainer.extraArgs": "--use-dynamic-batch-size --max-tokens-per-gpu 8192"},
        {"trainer.lora": {"rank": 8, "alpha": 16, "targetModules": ["q_proj"]}},
        {"trainer.parallelism": {"tp": 4, "ep": 8}},
        ASYNC | {"trainer.extraArgs": "--fully-async --pause-generation-mode retract"},
        {"trainer.preset": "glm47-flash-sync", "trainer.extraArgs": "--balance-by-flops", **LONG},
        {
            "trainer.preset": "glm47-flash-sync",
            "trainer.extraArgs": "--over-sampling-batch-size 4",
            **LONG,
        },
    ],
    ids=str,
)
def test_what_no_rule_forbids_passes(changes: dict[str, Any]) -> None:
    decided = hrl.decide(hrl.job(MILES | changes), hrl.world())
    assert hrl.condition(decided, "Admitted") == ("Unknown", "AwaitingPreflight"), hrl.message(decided, "Admitted")
