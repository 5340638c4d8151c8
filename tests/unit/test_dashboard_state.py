"""What the pages are told: whole once, then only what has changed."""

import json
from dataclasses import replace

from harborrl_agent_server.contract import ExitStatus
from harborrl_agent_server.dashboard.families import Family, family
from harborrl_agent_server.dashboard.state import KEPT_ENDED, KEPT_MINUTES, NOTHING, State, after, changes
from harborrl_agent_server.outcomes import Verdict
from harborrl_agent_server.phases import Phase
from harborrl_agent_server.snapshot import RunView, Snapshot
from support.dashboard import ended, running

NOW = 1_800_000_000.0


def seen(*live: RunView, finished: tuple[RunView, ...] = ()) -> Snapshot:
    return Snapshot(live, finished, {}, capacity=4, in_flight=len(live), queued=0, leaked=0)


def look(state: State, *live: RunView, finished: tuple[RunView, ...] = (), now: float = NOW) -> State:
    return after(state, seen(*live, finished=finished), status="ok", now=now)


def test_a_trial_that_only_grows_older_is_not_told_again() -> None:
    first = look(NOTHING, running("a"))
    older = replace(running("a"), age_s=131, phase_age_s=61, slot_age_s=91, agent_age_s=61)
    assert changes(first, look(first, older, now=NOW + 1)) == {}


def test_a_trial_is_told_again_when_its_phase_changes_and_when_it_has_gone() -> None:
    first = look(NOTHING, running("a"), running("b"))
    second = look(first, running("a", Phase.GRADING, agent_age_s=60.0, phase_age_s=0), now=NOW + 1)
    told = changes(first, second)["live"]
    assert told["gone"] == ["b"]
    assert [(row["phase"], row["agent_since"], row["agent_spent"]) for row in told["set"]] == [("grading", None, 60.0)]


def test_moments_are_counted_from_the_slot_and_the_agents_start() -> None:
    row = look(NOTHING, running("a")).live["a"]
    assert (row.since, row.slot_since, row.agent_since) == (NOW - 130, NOW - 90, NOW - 60)


def test_an_ended_trial_is_told_once_and_counted_once() -> None:
    first = look(NOTHING, finished=(ended("b", reward=0.5), ended("a")))
    second = look(first, finished=(ended("c", "SandboxLost", reward=None), ended("b", reward=0.5), ended("a")))
    assert [row["id"] for row in changes(NOTHING, first)["ended"]] == ["a", "b"]
    assert [row["id"] for row in changes(first, second)["ended"]] == ["c"]
    minute = second.minutes[int((NOW - 30) // 60)]
    assert (minute.graded, minute.infra, minute.scored, minute.reward) == (2, 1, 2, 1.5)


def test_a_session_that_is_asked_for_again_has_two_ends() -> None:
    """One that was flushed in the queue has no trial yet, so the next request begins it; its id is the session's."""
    flushed = ended("first", "Aborted", reward=None, id="session", trial_name=None)
    graded = ended("second", reward=1.0, id="session")
    first = look(NOTHING, finished=(flushed,))
    second = look(first, finished=(graded, flushed))
    assert [(row["id"], row["status"]) for row in changes(first, second)["ended"]] == [("session", "Submitted")]
    assert [row.status for row in second.ended.values()] == ["Aborted", "Submitted"]
    minute = next(iter(second.minutes.values()))
    assert (minute.graded, minute.aborted, minute.scored) == (1, 1, 1)


def test_the_age_of_a_session_that_is_asked_for_again_is_its_own() -> None:
    first = look(NOTHING, running("first", Phase.QUEUED, id="session"))
    again = look(first, running("second", Phase.QUEUED, id="session", age_s=5), now=NOW + 60)
    (row,) = again.live.values()
    assert row.since == NOW + 55
    assert changes(first, again)["live"]["gone"] == ["first"]


def test_what_has_no_reward_is_not_counted_as_0() -> None:
    state = look(NOTHING, finished=(ended("a", "Aborted", reward=None),))
    assert state.ended["a"].reward is None
    assert next(iter(state.minutes.values())).scored == 0


def test_lists_and_minutes_do_not_grow_for_ever() -> None:
    state = NOTHING
    for hour in range(30):
        batch = tuple(ended(f"{hour}-{number}", ended_s_ago=number) for number in range(100))
        state = look(state, finished=batch, now=NOW + hour * 3600)
    assert len(state.ended) == KEPT_ENDED
    assert min(state.minutes) > (NOW + 29 * 3600) // 60 - KEPT_MINUTES


def test_the_whole_state_is_the_change_from_nothing_and_goes_into_json() -> None:
    state = look(NOTHING, running("a"), finished=(ended("b"),))
    whole = json.loads(json.dumps(changes(NOTHING, state), allow_nan=False))
    alone = {"workers": 1, "silent": []}
    assert whole["server"] == {"status": "ok", "capacity": 4, "in_flight": 1, "queued": 0, "leaked": 0, **alone}
    assert [row["id"] for row in whole["live"]["set"]] == ["a"]


def test_a_family_may_train_exactly_when_its_outcomes_may() -> None:
    """As the table of outcomes has it: what is aborted or infrastructure has no report."""
    trains = {Family.GRADED, Family.LIMIT, Family.FAULT}
    discarded = [status for status in ExitStatus if family(status) not in trains]
    assert [status for status in ExitStatus if family(status) in trains] == list(ExitStatus)[:6]
    assert all(Verdict(status).infra_failure for status in discarded)
    assert family("NeverHeardOf") is Family.INFRA
