"""Arguments that Miles takes: none of our bounds and rules may refuse them."""

from typing import Any

import pytest

from support.launches import launched, of_preset, plain

BESIDE: dict[str, Any] = {"nodes": 2, "config__colocate": False}
PPO: dict[str, Any] = {"model__refLoad": "/mnt/converted", "config__megatronToHfMode": "raw"}
LEGAL: list[dict[str, Any]] = [
    {"recipeArgs": "--max-position-embeddings 1048576"},
    {"extraArgs": "--train-iters 2000000"},
    {"customConfigYaml": "eval_interval: null"},
    {"customConfigYaml": "max_tokens_per_gpu: null"},
    {"extraArgs": "--offload --offload-train-target disk", **BESIDE},
    {"extraArgs": "--offload-train --offload-train-target disk", **BESIDE},
    {"extraArgs": "--advantage-estimator ppo --offload-train-target disk", **BESIDE, **PPO},
    {"extraArgs": "--offload-train-target disk"},
    {"extraArgs": "--use-opd --opd-type sglang --opd-teacher-urls a=http://t"},
    {"extraArgs": "--use-opd --opd-type megatron --opd-teacher-load /t"},
]


@pytest.mark.parametrize("changes", LEGAL, ids=str)
def test_what_miles_takes_is_launched(changes: dict[str, Any]) -> None:
    assert launched(plain(**changes)).argv[0] == "train.py"


def test_a_preset_whose_yaml_takes_the_evaluation_away_is_launched() -> None:
    assert launched(of_preset("glm47-flash-sync", customConfigYaml="eval_interval: null")).argv[0] == "train.py"
