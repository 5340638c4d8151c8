"""How many trials are in flight: every layer of the arguments is read as the engine reads it, the last word wins."""

from typing import Any

import pytest

from harborrl_operator.resolve import resolve
from support import hrl

ASYNC = {
    "trainer.engine": "miles",
    "trainer.mode": "async",
    "trainer.nodes": 2,
    "trainer.gpusPerNode": 8,
    "trainer.image": "registry.example/miles:august",
    "trainer.config.milesSrcCommit": "31f1ca961a94cb860cec3b2dea34ec332bfa8f76",
}

LAYERS: list[tuple[str, dict[str, Any], int]] = [
    ("the typed values", {}, 8),
    ("the documented defaults", {"trainer.config": {}}, 512),
    ("a flag over a typed value", {"trainer.recipeArgs": "--rollout-batch-size 4"}, 16),
    ("a flag with an equals sign", {"trainer.recipeArgs": "--rollout-batch-size=5"}, 20),
    ("an underscored flag", {"trainer.recipeArgs": "--rollout_batch_size 5"}, 20),
    ("the last of two equal flags", {"trainer.recipeArgs": "--rollout-batch-size 9\n--rollout-batch-size=3"}, 12),
    (
        "extraArgs over recipeArgs",
        {"trainer.recipeArgs": "--rollout-batch-size 9", "trainer.extraArgs": "--rollout-batch-size 3"},
        12,
    ),
    (
        "YAML over extraArgs",
        {"trainer.extraArgs": "--n-samples-per-prompt 2", "trainer.customConfigYaml": "n_samples_per_prompt: 6"},
        12,
    ),
    ("a beginning that only one flag has", {"trainer.extraArgs": "--rollout-b 4"}, 16),
    ("another beginning, with an equals sign", {"trainer.extraArgs": "--n-samples-per-p=5"}, 10),
    ("not a beginning that several flags have", {"trainer.extraArgs": "--n-samples 5 --rollout 7"}, 8),
    ("not a comment", {"trainer.extraArgs": "# --rollout-batch-size 9"}, 8),
    ("not the value of another flag", {"trainer.extraArgs": "--run-name rollout-batch-size"}, 8),
]


@pytest.mark.parametrize(("changes", "expected"), [case[1:] for case in LAYERS], ids=[case[0] for case in LAYERS])
def test_the_trials_in_flight_follow_from(changes: dict[str, Any], expected: int) -> None:
    assert resolve(hrl.job(changes), hrl.SETTINGS).demand.in_flight == expected


@pytest.mark.parametrize(
    ("arguments", "expected", "formula"),
    [
        ("--async-max-concurrent-samples 96", 96, "--async-max-concurrent-samples 96"),
        ("--async-max 96", 96, "--async-max-concurrent-samples 96"),
        ("", 256, "--over-sampling-batch-size 64 x nSamplesPerPrompt 4"),
        ("--over-sampling-batch-size 10", 40, "--over-sampling-batch-size 10 x nSamplesPerPrompt 4"),
        ("--rollout-batch-size 100", 400, "rolloutBatchSize 100 x nSamplesPerPrompt 4"),
    ],
)
def test_an_asynchronous_run_keeps_its_bound_or_its_begun_groups(arguments: str, expected: int, formula: str) -> None:
    demand = resolve(hrl.job(ASYNC | {"trainer.extraArgs": arguments}), hrl.SETTINGS).demand
    assert (demand.in_flight, demand.formula) == (expected, formula)


def test_slots_that_are_not_named_are_exactly_what_is_in_flight_and_it_is_said_why() -> None:
    resolved = resolve(hrl.job(ASYNC), hrl.SETTINGS)
    assert resolved.max_concurrent == 256
    said = next(one for one in resolved.adjustments if one.field == "agentServer.maxConcurrent")
    assert said.value == "256"
    assert said.reason == "unset: what is in flight, --over-sampling-batch-size 64 x nSamplesPerPrompt 4"


def test_a_job_that_a_bound_makes_fit_is_told_so() -> None:
    refused = hrl.decide(hrl.job(ASYNC | {"agentServer.maxConcurrent": 32}), hrl.world())
    assert hrl.condition(refused, "Admitted") == ("False", "ConcurrencyBelowInFlight")
    assert "or set --async-max-concurrent-samples 32 in trainer.extraArgs" in hrl.message(refused, "Admitted")
    fits = ASYNC | {"agentServer.maxConcurrent": 32, "trainer.extraArgs": "--async-max-concurrent-samples 32"}
    assert hrl.condition(hrl.decide(hrl.job(fits), hrl.world()), "Admitted")[1] != "ConcurrencyBelowInFlight"
