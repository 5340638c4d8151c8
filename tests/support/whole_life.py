"""The passes over any job, as far as its spec gets: to its RayCluster; then it trains, fails or is suspended."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

from harborrl_operator.draft import Plan
from harborrl_operator.models import HarborRLJob
from harborrl_operator.observed import Observed, Surroundings
from harborrl_operator.plan import plan
from harborrl_operator.resolve import resolve
from support import hrl

LARGEST_STATUS = 32 * 1024
"""Bytes."""


def whole_life(job: HarborRLJob) -> list[Plan]:
    """At least two passes; one that got as far as `Preflight` goes on to a RayCluster and beyond."""
    claims = {volume.pvc: hrl.claim(volume.pvc) for volume in _volumes(job)}
    seen: dict[str, Any] = {"claims": claims, "surroundings": Surroundings(jobs=(job,))}
    passes = [_decide(job, hrl.world(**seen))]
    servers = [thing for thing in passes[0].apply if thing["kind"] == "Deployment"]
    seen["deployment"] = hrl.started(*servers) if servers else None
    job = hrl.then(job, passes[-1])
    passes.append(_decide(job, hrl.world(**seen)))
    if passes[-1].status.phase != "Preflight":
        return passes
    passed = hrl.preflight_pod(job, exit_code=0, message=hrl.PASSED)
    job = hrl.then(job, passes[-1])
    passes.append(_decide(job, hrl.world(**seen, preflight_pod=passed)))
    return [*passes, *_with_a_trainer(hrl.then(job, passes[-1]), seen)]


def _with_a_trainer(job: HarborRLJob, seen: dict[str, Any]) -> list[Plan]:
    """It trains; then its infrastructure fails, or it is suspended."""
    training = hrl.running_world(job, progress=hrl.progress(), **seen)
    failed = hrl.running_world(job, progress=hrl.progress("FAILED", failure="infrastructure", message="NCCL"), **seen)
    trains = _decide(job, training)
    job = hrl.then(job, trains)
    suspended = replace(job, spec=job.spec.model_copy(update={"suspend": True}))
    return [trains, _decide(job, failed, 20), _decide(suspended, training, 20)]


def _decide(job: HarborRLJob, seen: Observed, after: float = 0) -> Plan:
    decided = plan(job, seen, hrl.SETTINGS, hrl.NOW + timedelta(seconds=after))
    status = decided.status.model_dump(by_alias=True, mode="json")
    assert status["conditions"]
    json.dumps([decided.apply, status], allow_nan=False)
    assert len(json.dumps(status)) < LARGEST_STATUS
    return decided


def _volumes(job: HarborRLJob) -> list[Any]:
    storage = job.spec.storage
    named = (storage.models, storage.tasks, storage.checkpoints, storage.traces, storage.trials)
    default = resolve(hrl.job(base=hrl.MINIMAL_SPEC), hrl.SETTINGS).volumes["models"]
    return [*(volume for volume in named if volume), default]
