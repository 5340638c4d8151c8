"""Whatever is written into a spec: it is refused with the field's name, or becomes objects; no pass ends in a fault."""

import re
from typing import Any

from hypothesis import HealthCheck, given, settings

from harborrl_operator.draft import Plan
from harborrl_operator.models import InvalidJobError
from support import hrl
from support.mutants import FIELDS, mutants
from support.whole_life import whole_life

MANY = settings(max_examples=1000, deadline=None, suppress_health_check=list(HealthCheck))

WORDS = {name for path, _ in FIELDS for name in path}
"""Names of fields; a refusal has one of them, or of an engine's argument."""


def life(spec: dict[str, Any]) -> str:
    """How far the spec gets: running, or what stopped it."""
    try:
        job = hrl.job(base=spec)
    except InvalidJobError as error:
        return str(error)
    passes = whole_life(job)
    if len(passes) == 2:
        return refused_by_name(passes[-1])
    assert [one.status.phase for one in passes[2:4]] == ["StartingTrainer", "Running"]
    assert any(thing["kind"] == "RayCluster" for thing in passes[2].apply), passes[2].status.message
    return "running"


def faults(outcome: str) -> list[str]:
    return [fault for fault in outcome.split("; ") if fault.startswith("spec.")]


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
