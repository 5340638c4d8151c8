"""What the image's Miles cannot run is refused before anything starts: presets, modes, session servers."""

import json
from pathlib import Path
from typing import Any

import pytest

from harborrl_operator.models import HarborRLJob
from harborrl_operator.resolve import resolve
from harborrl_trainer.launch import generate
from support import hrl

ROOT = Path(__file__).resolve().parents[2]
NEW = "31f1ca961a94cb860cec3b2dea34ec332bfa8f76"
NEWER: dict[str, Any] = {"trainer.image": "registry.example/miles:august", "trainer.config.milesSrcCommit": NEW}


def miles(changes: dict[str, Any]) -> HarborRLJob:
    """A job that sets no hyper-parameter of its own."""
    bare = {"trainer.engine": "miles", "trainer.gpusPerNode": 8, "trainer.config": {}, "trainer.maxSeqLen": None}
    return hrl.job(bare | changes)


@pytest.mark.parametrize(
    ("changes", "reason", "says"),
    [
        ({"trainer.preset": "glm5"}, "PresetUnsupported", "there is no glm5. Choose one of glm47-flash-sync"),
        (
            {"trainer.preset": "glm47-flash-async", "trainer.mode": "async"},
            "PresetUnsupported",
            "needs 1 flags that Miles 9a00364 in image radixark/miles:dev-202604201238 does not know (--fully-async)",
        ),
        ({"trainer.preset": "glm52-lora"}, "PresetUnsupported", "needs 7 flags that Miles 9a00364"),
        (
            NEWER | {"trainer.preset": "glm47-flash-async"},
            "EngineMismatch",
            "Set trainer.mode: async",
        ),
        ({"trainer.mode": "async"}, "EngineMismatch", "which Miles 9a00364 in image"),
        ({"trainer.ports": {"sessionCount": 4}}, "EngineMismatch", "sessionCount is 4 and Miles 9a00364 runs one"),
        (
            {"trainer.config.milesSrcCommit": NEW},
            "EngineMismatch",
            "names Miles 31f1ca9, and image radixark/miles:dev-202604201238 holds 9a00364. Set trainer.image",
        ),
        ({"trainer.config.milesSrcCommit": "beef"}, "EngineUnavailable", "Miles beef is not among the versions"),
    ],
)
def test_is_refused_with_the_numbers_and_the_way_out(changes: dict[str, Any], reason: str, says: str) -> None:
    decided = hrl.decide(miles(changes), hrl.world())
    assert hrl.condition(decided, "Admitted") == ("False", reason), hrl.message(decided, "Admitted")
    assert says in hrl.message(decided, "Admitted")
    assert decided.apply == ()


@pytest.mark.parametrize(
    "changes",
    [
        {"trainer.preset": "glm47-flash-sync"},
        NEWER | {"trainer.preset": "glm47-flash-async", "trainer.mode": "async"},
        NEWER | {"trainer.preset": "glm52-lora"},
        NEWER | {"trainer.ports": {"sessionCount": 4}},
    ],
)
def test_what_the_version_can_run_is_admitted(changes: dict[str, Any]) -> None:
    decided = hrl.decide(miles(changes), hrl.world())
    assert hrl.condition(decided, "Admitted") == ("Unknown", "AwaitingPreflight"), hrl.message(decided, "Admitted")


def test_what_an_older_miles_cannot_do_is_said_among_the_adjustments() -> None:
    said = {one.field: one.reason for one in resolve(miles({}), hrl.SETTINGS).adjustments}
    assert "Miles 9a00364 saves on saveInterval alone" in said["checkpoint on request"]
    assert "traces/trajectory" in said
    newer = resolve(miles(NEWER), hrl.SETTINGS)
    assert "checkpoint on request" not in {one.field for one in newer.adjustments}


def test_a_presets_values_rank_between_the_documented_defaults_and_the_jobs_own() -> None:
    resolved = resolve(miles({"trainer.preset": "glm47-flash-sync", "trainer.config.lr": 1e-5}), hrl.SETTINGS)
    config = resolved.config
    assert (config["rolloutBatchSize"], config["adamBeta2"], config["lr"], config["seed"]) == (4, 0.98, 1e-5, 1234)
    assert config["noSaveOptim"] is False
    assert resolved.max_concurrent == 32
    assert resolved.document(1)["explicitConfig"] == ["lr"]


def test_a_preset_gives_the_length_and_the_adapters_that_the_job_leaves_out() -> None:
    long = resolve(miles(NEWER | {"trainer.preset": "glm47-flash-async", "trainer.mode": "async"}), hrl.SETTINGS)
    assert long.document(1)["maxSeqLen"] == 16384
    assert long.config["actorNodes"] == 1
    adapters = resolve(miles(NEWER | {"trainer.preset": "glm52-lora"}), hrl.SETTINGS).document(1)
    assert (adapters["lora"]["rank"], adapters["maxSeqLen"]) == (16, 65536)


def test_the_operators_table_is_generated_from_the_trainers() -> None:
    written = (ROOT / "operator/harborrl_operator/miles.json").read_text()
    assert json.loads(written) == json.loads(generate.render()), "run `make generate`"
