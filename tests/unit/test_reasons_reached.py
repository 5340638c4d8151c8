"""Every documented reason is reached by some test. Runs last, after all unit tests.

That no other is shown needs no test: conditions take a Reason, and docs/conditions.md is compared with the enum.
"""

from pathlib import Path
from typing import get_args

from hypothesis import given
from hypothesis import strategies as st

from harborrl_operator.constants import Reason
from harborrl_trainer.preflight import findings
from support import reached

ELSEWHERE: dict[str, str] = {}
"""Reasons that only a test of another folder can reach, each with that test."""


def test_every_documented_reason_of_a_condition_is_reached() -> None:
    by_preflight = reached.FINDINGS & {reason.value for reason in Reason}
    assert reached.never((r.value for r in Reason), reached.CONDITIONS | by_preflight, ELSEWHERE) == []


def test_every_reason_of_a_finding_is_reached() -> None:
    assert reached.never(get_args(findings.Reason.__value__), reached.FINDINGS, {}) == []


def test_a_reason_that_nothing_reached_is_named_unless_it_is_exempt() -> None:
    assert reached.never(["A", "B", "C"], {"A"}, {"B": "needs two clusters"}) == ["C"]


def test_what_one_run_left_counts_in_the_next(tmp_path: Path) -> None:
    reached.FINDINGS.add("LeftByATest")
    reached.leave(tmp_path / "made" / "left.json")
    reached.FINDINGS.remove("LeftByATest")
    before = set(reached.FILES)
    reached.go_on_from(tmp_path / "made" / "left.json")
    assert "LeftByATest" in reached.FINDINGS
    assert before == reached.FILES
    reached.FINDINGS.remove("LeftByATest")


def test_what_an_example_came_to_that_was_drawn_does_not_count() -> None:
    @given(st.just("Drawn"))
    def draw(reason: str) -> None:
        reached.note_document({"findings": [{"reason": reason}]})

    draw()
    assert "Drawn" not in reached.FINDINGS
