"""A spec that the schema admits never ends a pass without a word: it is refused, or becomes objects."""

import json
from typing import Any

from hypothesis import HealthCheck, given, settings

from harborrl_operator.plan import plan
from support import hrl
from support.specs import admitted_specs

# What lets a spec past the checks, so that the builders see the rest of it as it was drawn.
LIVABLE: dict[str, Any] = {
    "suspend": False,
    "rollout": {"agentTrialTimeoutSeconds": 604_800},
    "model": {"path": "m"},
    "trainer.engine": "native",
    "trainer.mode": "sync",
    "trainer.lora": None,
    "trainer.preset": None,
    "trainer.parallelism": None,
    "trainer.recipeArgs": "",
    "trainer.extraArgs": "",
    "trainer.customConfigYaml": "",
    "trainer.allowPartialStart": True,
    "trainer.ports": {},
    "trainer.env": [],
    "trainer.config": {"rolloutBatchSize": 8, "nSamplesPerPrompt": 8, "globalBatchSize": 8},
    "agentServer.maxConcurrent": 100_000,
    "agentServer.dashboardPort": 0,
    "agentServer.agentName": "bash",
    "agentServer.sandbox": {},
    **{
        f"agentServer.{budget}Seconds": 60
        for budget in ("environmentStart", "agentSetup", "agentTimeout", "verifier", "cleanup")
    },
}
SLOW = settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))


def pass_over(spec: dict[str, Any]) -> str:
    job = hrl.job(base=spec)
    roles = ("models", "tasks", "checkpoints", "traces", "trials")
    named = {volume.pvc for role in roles if (volume := getattr(job.spec.storage, role))}
    claims = {name: hrl.claim(name) for name in (*named, "harborrl-data")}
    first = plan(job, hrl.world(claims=claims), hrl.SETTINGS, hrl.NOW)
    started = [thing for thing in first.apply if thing["kind"] == "Deployment"]
    seen: dict[str, Any] = {"deployment": hrl.started(*started) if started else None, "claims": claims}
    decided = plan(job, hrl.world(**seen), hrl.SETTINGS, hrl.NOW)
    if decided.status.phase == "Preflight" and job.spec.resume_from is None:
        passed = hrl.preflight_pod(job, exit_code=0, message=hrl.PASSED)
        decided = plan(job, hrl.world(**seen, preflight_pod=passed), hrl.SETTINGS, hrl.NOW)
    json.dumps([decided.apply, decided.status.model_dump(by_alias=True, mode="json")], allow_nan=False)
    assert decided.status.reason
    return decided.status.phase


@given(admitted_specs())
@SLOW
def test_any_spec_is_judged(spec: dict[str, Any]) -> None:
    pass_over({**spec, "suspend": False})


@given(admitted_specs())
@SLOW
def test_any_spec_with_livable_numbers_is_judged_and_built(spec: dict[str, Any]) -> None:
    pass_over(hrl.merged(spec, LIVABLE))


def test_livable_numbers_reach_the_builders() -> None:
    assert pass_over(hrl.merged(hrl.QUICKSTART_SPEC, LIVABLE)) == "StartingTrainer"
