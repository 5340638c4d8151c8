"""Whatever is written into a spec: it is refused with the field's name, or becomes objects; no pass ends in a fault."""

import json
import re
from typing import Any

from hypothesis import HealthCheck, given, settings

from harborrl_operator.draft import Plan
from harborrl_operator.models import HarborRLJob, InvalidJobError
from harborrl_operator.observed import Observed, Surroundings
from harborrl_operator.plan import plan
from harborrl_operator.resolve import resolve
from support import hrl
from support.mutants import FIELDS, mutants

MANY = settings(max_examples=1000, deadline=None, suppress_health_check=list(HealthCheck))

WORDS = {name for path, _ in FIELDS for name in path}
"""Names of fields; a refusal has one of them, or of an engine's argument."""


def decide(job: HarborRLJob, seen: Observed) -> Plan:
    decided = plan(job, seen, hrl.SETTINGS, hrl.NOW)
    status = decided.status.model_dump(by_alias=True, mode="json")
    json.dumps([decided.apply, status], allow_nan=False)
    assert len(json.dumps(status)) < 32 * 1024
    return decided


def life(spec: dict[str, Any]) -> str:
    """From the first pass to a running attempt, as far as the spec gets; what stopped it."""
    try:
        job = hrl.job(base=spec)
    except InvalidJobError as error:
        return str(error)
    claims = {volume.pvc: hrl.claim(volume.pvc) for volume in _volumes(job)}
    seen: dict[str, Any] = {"claims": claims, "surroundings": Surroundings(jobs=(job,))}
    made = [thing for thing in decide(job, hrl.world(**seen)).apply if thing["kind"] == "Deployment"]
    seen["deployment"] = hrl.started(*made) if made else None
    decided = decide(job, hrl.world(**seen))
    if decided.status.phase != "Preflight":
        return refused_by_name(decided)
    pod = hrl.preflight_pod(job, exit_code=0, message=hrl.PASSED)
    for _ in range(2):
        job = hrl.then(job, decided)
        decided = decide(job, hrl.world(**seen, preflight_pod=pod))
    assert any(thing["kind"] == "RayCluster" for thing in decided.apply), decided.status.message
    decide(hrl.then(job, decided), hrl.running_world(job, progress=hrl.progress(), **seen))
    return "running"


def faults(outcome: str) -> list[str]:
    return [fault for fault in outcome.split("; ") if fault.startswith("spec.")]


def _volumes(job: HarborRLJob) -> list[Any]:
    named = (getattr(job.spec.storage, role) for role in ("models", "tasks", "checkpoints", "traces", "trials"))
    return [*(volume for volume in named if volume), resolve_default()]


def resolve_default() -> Any:
    return resolve(hrl.job(base=hrl.MINIMAL_SPEC), hrl.SETTINGS).volumes["models"]


def refused_by_name(decided: Plan) -> str:
    if decided.status.phase == "Suspended":
        return "suspended"
    assert hrl.condition(decided, "Admitted")[0] == "False", decided.status
    said = hrl.message(decided, "Admitted")
    assert any(word in said for word in WORDS) or re.search(r"--?\w[-\w]+|\w+_\w+", said), said
    return "refused"


@given(mutants())
@MANY
def test_a_spec_with_anything_in_it_is_refused_by_name_or_runs(spec: dict[str, Any]) -> None:
    assert re.match(r"spec\.\w|running|refused|suspended", life(spec))


@given(mutants(junk=False))
@MANY
def test_a_spec_that_the_schema_admits_is_refused_by_name_or_runs(spec: dict[str, Any]) -> None:
    # A field of an optional part that is not there lacks the part's required ones: no other fault is possible.
    assert all("Field required" in fault for fault in faults(life(spec)))


def test_the_good_specs_themselves_run() -> None:
    assert [life(spec) for spec in (hrl.QUICKSTART_SPEC, hrl.MINIMAL_SPEC, hrl.DESIGN_SPEC)] == ["running"] * 3
