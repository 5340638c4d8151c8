"""What an engine of this version cannot do is refused by its field's name, and what it does anyway may be spelt out."""

from typing import Any

import pytest

from support import hrl
from support.hrl import condition, decide, message


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"trainer.lora": {"rank": 8, "alpha": 16, "targetModules": ["q_proj"]}}, "trainer.lora"),
        ({"trainer.mode": "async"}, "trainer.mode async"),
        ({"trainer.preset": "glm47-flash-sync"}, "trainer.preset"),
        ({"trainer.recipeArgs": "--swiglu"}, "trainer.recipeArgs"),
        ({"trainer.extraArgs": "--over-sampling-batch-size 3"}, "trainer.extraArgs"),
        ({"trainer.customConfigYaml": "swiglu: true"}, "trainer.customConfigYaml"),
        ({"trainer.parallelism": {"tp": 2}}, "trainer.parallelism"),
        ({"trainer.ports": {"sessionCount": 2}}, "trainer.ports.sessionCount"),
        ({"model.refLoad": "other"}, "model.refLoad"),
        ({"trainer.config.advantageEstimator": "reinforce"}, "trainer.config.advantageEstimator"),
        ({"trainer.config.lrDecayStyle": "cosine"}, "trainer.config.lrDecayStyle"),
        ({"trainer.config.inputKey": "question"}, "trainer.config.inputKey"),
        ({"trainer.config.labelKey": "answer"}, "trainer.config.labelKey"),
        ({"trainer.config.bf16": False}, "trainer.config.bf16"),
    ],
)
def test_a_field_that_native_does_not_read_is_refused_by_name(changes: dict[str, Any], named: str) -> None:
    decided = decide(hrl.job(changes), hrl.world())
    assert condition(decided, "Admitted") == ("False", "FieldUnsupported")
    assert f"Engine native does not read {named}:" in message(decided, "Admitted")
    assert decided.apply == ()


@pytest.mark.parametrize(
    "changes",
    [
        {"trainer.config.advantageEstimator": "grpo", "trainer.config.lrDecayStyle": "constant"},
        {"trainer.config.inputKey": "prompt", "trainer.config.bf16": True, "trainer.config.appTags": {"team": "a"}},
        {"trainer.config.lr": 0.5, "trainer.config.klCoef": 0.1},
        {"trainer.recipeArgs": "# nothing yet", "trainer.parallelism": {"tp": 1}},
    ],
)
def test_what_native_does_anyway_may_be_spelt_out(changes: dict[str, Any]) -> None:
    assert decide(hrl.job(changes), hrl.world()).status.phase == "StartingAgentServer"


def test_the_same_fields_are_miles_own_business() -> None:
    job = hrl.job({"trainer.engine": "miles", "trainer.preset": "glm47-flash-sync", "trainer.extraArgs": "--swiglu"})
    assert decide(job, hrl.world()).status.phase == "StartingAgentServer"
