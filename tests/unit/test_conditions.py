"""Conditions keep their history, and the list of reasons is closed and documented."""

import re
from pathlib import Path

from harborrl_operator.conditions import MESSAGE_LIMIT, Conditions, shorten
from harborrl_operator.constants import Cause, ConditionType, Phase, Reason
from harborrl_operator.names import JobNames
from harborrl_operator.transitions import transitions
from support import hrl

DOCS = Path(__file__).resolve().parents[2] / "docs" / "conditions.md"


def test_the_documented_reasons_are_exactly_those_that_exist() -> None:
    documented = re.findall(
        r"^\| `([A-Za-z]+)` \|", DOCS.read_text().split("## Reasons")[1].split("## Causes")[0], flags=re.MULTILINE
    )
    assert sorted(documented) == sorted(reason.value for reason in Reason)


def test_the_documented_causes_are_exactly_those_that_exist() -> None:
    documented = re.findall(r"^\| `([A-Za-z]+)` \|", DOCS.read_text().split("## Causes")[1], flags=re.MULTILINE)
    assert sorted(documented) == sorted(cause.value for cause in Cause)


def test_every_phase_and_condition_is_documented() -> None:
    text = DOCS.read_text()
    assert [word for word in (*Phase, *ConditionType) if f"`{word}`" not in text] == []


def test_the_transition_time_moves_only_when_the_status_flips() -> None:
    first = Conditions([], 1, "t1")
    first.set(ConditionType.ADMITTED, "False", Reason.NO_TASKS, "a")
    second = Conditions(first.listed(), 2, "t2")
    second.set(ConditionType.ADMITTED, "False", Reason.TASK_NOT_FOUND, "b")
    assert second.listed()[0].last_transition_time == "t1"
    assert second.listed()[0].observed_generation == 2
    second.set(ConditionType.ADMITTED, "True", Reason.ADMITTED)
    assert second.listed()[0].last_transition_time == "t2"


def test_a_long_message_keeps_head_and_tail() -> None:
    short = shorten("head " + "x" * 100_000 + " tail")
    assert len(short) <= MESSAGE_LIMIT
    assert short.startswith("head")
    assert short.endswith("tail")


def test_an_unchanged_status_makes_no_event_and_each_change_makes_one() -> None:
    job = hrl.job()
    first = hrl.decide(job, hrl.world()).status
    assert [event.reason for event in transitions(job.status, first)] == ["Starting"]
    assert transitions(first, first) == []
    ready = hrl.decide(hrl.job(status=first), hrl.world(deployment=hrl.deployment())).status
    assert [(event.kind, event.reason) for event in transitions(first, ready)] == [
        ("Normal", "AwaitingPreflight"),
        ("Normal", "AgentServerReady"),
    ]


def test_two_runs_of_one_name_share_no_path() -> None:
    first, second = JobNames("a", "b", "11111111-x"), JobNames("a", "b", "22222222-x")
    assert first.run_path != second.run_path
