"""The reasons that tests have reached in this run: filled by the helpers through which tests look at a verdict.

What a property's drawn example came to does not count: on another machine, or beside other tests, others are drawn.

A run of some of the files leaves what it reached for another one to go on from: `pytest --leave-reached FILE`, and
`--reached FILE` as often as there were others.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hypothesis import currently_in_test_context

from harborrl_operator.models import JobStatus
from harborrl_trainer.preflight.findings import Outcome

CONDITIONS: set[str] = set()
"""Reasons of conditions that the operator decided."""
FINDINGS: set[str] = set()
"""Reasons of findings that a preflight's check came to."""
FILES: set[str] = set()
"""Names of the test files that reached them."""


def note_status(status: JobStatus | Mapping[str, Any]) -> None:
    if isinstance(status, JobStatus):
        _note(CONDITIONS, (condition.reason for condition in status.conditions))
    else:
        _note(CONDITIONS, (condition["reason"] for condition in status.get("conditions") or []))


def note_outcome(outcome: Outcome) -> None:
    _note(FINDINGS, (finding.reason for finding in outcome.findings))


def note_document(document: Mapping[str, Any]) -> None:
    """A result as a container of the preflight leaves it."""
    _note(FINDINGS, (finding["reason"] for finding in document["findings"]))


def _note(those: set[str], reasons: Iterable[str]) -> None:
    if not currently_in_test_context():
        those.update(reasons)


def leave(place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    found = {"files": FILES, "conditions": CONDITIONS, "findings": FINDINGS}
    place.write_text(json.dumps({name: sorted(these) for name, these in found.items()}))


def go_on_from(place: Path) -> None:
    left = json.loads(place.read_text())
    FILES.update(left["files"])
    CONDITIONS.update(left["conditions"])
    FINDINGS.update(left["findings"])


def never(listed: Iterable[str], reached: set[str], exempt: Mapping[str, str]) -> list[str]:
    """What is listed, was not reached, and has no reason to be missing."""
    return sorted(set(listed) - reached - exempt.keys())
