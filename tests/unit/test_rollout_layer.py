"""Places, re-runs, groups and the trial log of `harborrl_trainer.rollout`."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from harborrl_trainer.rollout.agent_client import AgentServerAbsent, AgentServerError, AgentServerUnreachable, Health
from harborrl_trainer.rollout.groups import (
    EveryGroupAborted,
    EveryGroupHopeless,
    Group,
    OpenGroups,
    Patience,
    drop_cause,
    drop_reason,
    keep_whole,
)
from harborrl_trainer.rollout.inflight import InFlight, follow_capacity, width_for
from harborrl_trainer.rollout.ledger import Ledger, growth
from harborrl_trainer.rollout.outcomes import Verdict, aborted
from harborrl_trainer.rollout.trial_log import TrialLog, TrialRecord
from harborrl_trainer.rollout.trials import (
    TrialEnd,
    TrialHistory,
    end_without_reply,
    gather_or_cancel,
    run_trial,
)

CONTRACT = Path(__file__).resolve().parents[1] / "contract"


async def test_no_more_trials_are_under_way_than_there_are_places() -> None:
    places, widest, held = InFlight(3), 0, 0

    async def trial() -> None:
        nonlocal widest, held
        async with places.place():
            held += 1
            widest = max(widest, held)
            await asyncio.sleep(0)
            held -= 1

    await asyncio.gather(*(trial() for _ in range(20)))
    assert (widest, places.held) == (3, 0)


async def test_room_that_appears_lets_a_waiting_trial_in() -> None:
    places = InFlight(1)
    async with places.place():
        waiting = asyncio.create_task(_hold(places))
        await asyncio.sleep(0)
        assert not waiting.done()
        await places.resize(2)
        await waiting


async def test_a_cancelled_trial_gives_its_place_back() -> None:
    places = InFlight(1)
    entered = asyncio.Event()

    async def trial() -> None:
        async with places.place():
            entered.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(trial())
    await entered.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert places.held == 0


@pytest.mark.parametrize(
    ("capacity", "in_flight", "queued", "held", "width"),
    [
        (8, 0, 0, 0, 8),
        (8, 3, 0, 3, 8),
        (8, 5, 0, 3, 6),  # two are another job's
        (8, 0, 0, 3, 8),  # ours have not reached the server's count yet
        (8, 8, 4, 0, 1),  # full of others' trials: one place, to be asked again
    ],
)
def test_the_width_is_what_we_hold_and_what_nobody_holds(
    capacity: int, in_flight: int, queued: int, held: int, width: int
) -> None:
    assert width_for(Health(True, capacity, in_flight, queued), held) == width


async def test_the_width_follows_the_servers_capacity() -> None:
    places, reports = InFlight(1), [Health(True, 4, 0, 0), Health(True, 2, 0, 0)]
    widths: list[int] = []

    async def health() -> Health:
        return reports.pop(0)

    async def pause() -> None:
        widths.append(places.width)
        if not reports:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await follow_capacity(places, health, pause)
    assert widths == [4, 2]


async def test_a_trial_that_infrastructure_failed_is_run_once_more() -> None:
    ends = [_end(aborted("SandboxLost")), _end(Verdict("completed", 1.0))]
    history = await _trial(ends, clock=[0.0, 10.0])
    assert history.final.verdict.reward == 1.0
    assert history.replaced is not None
    assert history.replaced.verdict.cause == "SandboxLost"


async def test_it_is_not_run_a_third_time() -> None:
    history = await _trial([_end(aborted("one")), _end(aborted("two")), _end(aborted("three"))], clock=[0.0, 10.0])
    assert history.final.verdict.cause == "two"


async def test_it_is_not_run_again_when_little_time_is_left() -> None:
    history = await _trial([_end(aborted("slow")), _end(Verdict("completed", 1.0))], clock=[0.0, 60.0])
    assert history.final.verdict.cause == "slow"


async def test_it_is_not_run_again_when_the_server_would_refuse_what_time_is_left() -> None:
    ends = [_end(aborted("SandboxLost")), _end(aborted("QueueTimeout"))]
    history = await _trial(ends, clock=[0.0, 10.0], needed_s=95.0)
    assert history.final.verdict.cause == "SandboxLost"


async def test_it_is_not_run_again_when_that_cannot_help() -> None:
    history = await _trial(
        [_end(aborted("TaskNotFound", retryable=False)), _end(Verdict("completed", 1.0))], clock=[0.0, 1.0]
    )
    assert history.replaced is None


async def test_it_is_not_run_again_when_nobody_wants_it_any_more() -> None:
    runs = []

    async def once(run: int, _ceiling_s: float) -> TrialEnd[Any]:
        runs.append(run)
        return _end(aborted("Aborted"))

    await run_trial(once, places=InFlight(1), ceiling_s=100, clock=lambda: 0.0, counter=Ledger(), wanted=lambda: False)
    assert runs == [0]


async def test_the_second_run_has_only_the_time_that_the_first_left() -> None:
    ceilings: list[float] = []

    async def once(_: int, ceiling_s: float) -> TrialEnd[Any]:
        ceilings.append(ceiling_s)
        return _end(aborted("SandboxLost"))

    times = iter([0.0, 30.0])
    await run_trial(once, places=InFlight(1), ceiling_s=100, clock=lambda: next(times), counter=Ledger())
    assert ceilings == [100, 70.0]


@pytest.mark.parametrize(
    ("lost", "asked", "there", "runs"),
    [
        (AgentServerUnreachable("reset"), [40.0], True, 2),
        (AgentServerUnreachable("reset"), [40.0], False, 1),
        (AgentServerAbsent("refused"), [], True, 2),
    ],
    ids=["there is room", "it is not reached", "nobody took it"],
)
async def test_a_trial_that_may_still_run_is_not_doubled_before_there_is_room(
    lost: AgentServerError, asked: list[float], there: bool, runs: int
) -> None:
    """Of 100 s half must be left for the second run, and 10 are over."""
    waited: list[float] = []
    ends = [end_without_reply(lost, "s"), _end(Verdict("completed", 1.0))]
    times = iter([0.0, 10.0, 30.0])

    async def once(_run: int, _ceiling_s: float) -> TrialEnd[Any]:
        return ends.pop(0)

    async def room(seconds: float) -> bool:
        waited.append(seconds)
        return there

    history = await run_trial(
        once, places=InFlight(1), ceiling_s=100, clock=lambda: next(times), counter=Ledger(), room=room
    )
    assert (waited, 1 if history.replaced is None else 2) == (asked, runs)


async def test_every_trial_that_began_is_counted_once_more_when_it_ends() -> None:
    ledger = Ledger()
    await _trial([_end(aborted("a"), "SandboxLost"), _end(Verdict("completed", 1.0))], [0.0, 1.0], ledger=ledger)
    await _trial([_end(Verdict("truncated", 0.0))], [0.0, 1.0], ledger=ledger)
    await _trial([_end(aborted("x", retryable=False), "TaskNotFound")], [0.0, 1.0], ledger=ledger)
    assert (ledger.started, ledger.ended, ledger.reruns) == (3, 3, 1)
    assert ledger.statuses == {"completed": 1, "truncated": 1, "aborted": 1}
    assert ledger.causes == {"TaskNotFound": 1}


async def test_a_cancelled_trial_is_counted_as_such_and_stays_cancelled() -> None:
    ledger, entered = Ledger(), asyncio.Event()

    async def hangs(_run: int, _ceiling_s: float) -> TrialEnd[Any]:
        entered.set()
        await asyncio.Event().wait()
        raise AssertionError

    trial = run_trial(hangs, places=InFlight(1), ceiling_s=100, clock=lambda: 0.0, counter=ledger)
    task = asyncio.create_task(trial)
    await entered.wait()
    assert ledger.in_flight == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (ledger.in_flight, ledger.causes) == (0, {"Cancelled": 1})


def test_counters_become_metrics_of_what_happened_between_two_looks() -> None:
    ledger = Ledger()
    ledger.group("")
    before = ledger.counts()
    ledger.group("SandboxLost")
    grown = growth(before, ledger.counts())
    assert (grown["groups_kept"], grown["groups_dropped"], grown["dropped/SandboxLost"]) == (0, 1, 1)


def test_dropped_groups_in_a_row_end_the_run_and_a_kept_one_begins_the_count_anew() -> None:
    lost, whole = _group([aborted("SandboxLost")]), _group([Verdict("completed", 1.0)])
    patience = Patience(2)
    assert [patience.after(group) for group in (lost, whole, lost)] == [None, None, None]
    assert str(patience.after(lost)).startswith("all 2 groups had an aborted trial")


def test_no_number_of_dropped_groups_ends_a_run_that_is_told_so() -> None:
    patience = Patience(0)
    assert not any(patience.after(_group([aborted("SandboxLost")])) for _ in range(50))


def test_a_hopeless_streak_is_told_from_an_unlucky_one() -> None:
    patience = Patience(1)
    missing = Group(0, "a", [TrialHistory(_end(aborted("no task", retryable=False), outcome="TaskNotFound"))])
    assert isinstance(patience.after(missing), EveryGroupHopeless)
    assert drop_cause(missing) == "TaskNotFound"


def test_a_group_is_whole_with_its_last_trial_and_begins_anew_when_it_is_run_again() -> None:
    groups: OpenGroups[str] = OpenGroups(2)
    assert groups.add(7, "a") is None
    assert groups.add(8, "x") is None
    assert groups.add(7, "b") == ["a", "b"]
    assert groups.add(7, "c") is None
    assert groups.close() == [["x"], ["c"]]
    assert groups.close() == []


async def test_one_failure_cancels_the_rest_and_waits_for_them() -> None:
    gone = asyncio.Event()

    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            gone.set()

    async def fails() -> None:
        await asyncio.sleep(0)
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await gather_or_cancel([slow(), fails()])
    assert gone.is_set()


def test_a_group_with_an_aborted_member_is_dropped_whole_and_says_why() -> None:
    group = _group([Verdict("completed", 1.0), aborted("SandboxLost")])
    assert drop_reason(group) == "group has 1 of 2 aborted: SandboxLost"
    assert keep_whole([group, _group([Verdict("completed", 1.0)])])[0].rewards == [1.0]


def test_a_rollout_without_one_whole_group_gives_up_with_the_last_cause() -> None:
    lost = end_without_reply(AgentServerUnreachable("refused"), "s").verdict
    with pytest.raises(EveryGroupAborted, match=r"all 2 groups .* last cause: AgentServerUnreachable: refused"):
        keep_whole([_group([aborted("x")]), _group([lost])])


def test_when_each_group_meets_what_no_retry_heals_that_cause_is_the_one_that_is_told() -> None:
    missing = _end(aborted("TaskNotFound: no task 'a'", retryable=False), outcome="TaskNotFound")
    lost = _end(aborted("SandboxLost"), outcome="SandboxLost")
    group = Group(0, "a", [TrialHistory(missing), TrialHistory(lost)])
    with pytest.raises(EveryGroupHopeless, match=r"all 2 groups .* last cause: TaskNotFound: no task 'a' \(instance a"):
        keep_whole([group, group])
    with pytest.raises(EveryGroupAborted) as raised:
        keep_whole([group, Group(1, "b", [TrialHistory(lost)])])
    assert not isinstance(raised.value, EveryGroupHopeless)


def test_equal_rewards_have_no_spread() -> None:
    assert not _group([Verdict("completed", 0.5), Verdict("truncated", 0.5)]).has_spread
    assert _group([Verdict("completed", 0.5), Verdict("truncated", 0.0)]).has_spread


def test_a_trial_record_has_the_fields_of_the_contract(tmp_path: Path) -> None:
    expected = json.loads((CONTRACT / "trial_record.json").read_text())
    tokens = expected.pop("tokens")
    fields = {key: value for key, value in expected.items() if key != "schemaVersion"}
    log = TrialLog(tmp_path / "trials" / "native.jsonl")
    log.append(TrialRecord(**fields, prompt_tokens=tokens["prompt"], response_tokens=tokens["response"]))
    log.close()
    written = json.loads((tmp_path / "trials" / "native.jsonl").read_text())
    assert written == {**expected, "tokens": tokens, "replaced": None}


def test_a_torn_last_line_does_not_swallow_the_next_record(tmp_path: Path) -> None:
    path = tmp_path / "native.jsonl"
    path.write_text('{"torn": ')
    log = TrialLog(path)
    log.append(_record())
    log.close()
    assert json.loads(path.read_text().splitlines()[1])["session"] == "s"


def test_a_reward_that_is_no_number_never_reaches_the_log(tmp_path: Path) -> None:
    log = TrialLog(tmp_path / "native.jsonl")
    with pytest.raises(ValueError, match="Out of range float"):
        log.append(_record(reward=float("nan")))
    log.close()


async def _hold(places: InFlight) -> None:
    async with places.place():
        pass


async def _trial(
    ends: list[TrialEnd[Any]], clock: list[float], needed_s: float = 0.0, ledger: Ledger | None = None
) -> TrialHistory[Any]:
    times = iter(clock)

    async def once(_run: int, _ceiling_s: float) -> TrialEnd[Any]:
        return ends.pop(0)

    places = InFlight(1)
    return await run_trial(
        once, places=places, ceiling_s=100, clock=lambda: next(times), counter=ledger or Ledger(), needed_s=needed_s
    )


def _end(verdict: Verdict, outcome: str = "x") -> TrialEnd[Any]:
    return TrialEnd(verdict, outcome=outcome, session="s")


def _group(verdicts: Sequence[Verdict]) -> Group[Any]:
    return Group(0, "task", [TrialHistory(_end(verdict)) for verdict in verdicts])


def _record(reward: float | None = None) -> TrialRecord:
    return TrialRecord(
        time="2026-01-01T00:00:00.000Z",
        rollout_id=0,
        group_id=0,
        sample_id=0,
        session="s",
        instance_id="i",
        outcome="Submitted",
        status="completed",
        cause="",
        reward=reward,
        kept=True,
    )
