"""The states of a run, and what can be seen of all runs at one moment."""

import asyncio
import json
from dataclasses import FrozenInstanceError, asdict
from pathlib import Path
from typing import Any

import httpx
import pytest

from harborrl_agent_server.answers import refusal
from harborrl_agent_server.contract import ExitStatus, RunRequest
from harborrl_agent_server.gateway import Gateway
from harborrl_agent_server.metrics import Metrics
from harborrl_agent_server.outcomes import Cause
from harborrl_agent_server.phases import ENDS, OWN_WAY, STEPS, Phase, may_follow
from harborrl_agent_server.run import Run
from harborrl_agent_server.runs import REMEMBERED, Runs
from harborrl_agent_server.sandboxes.local import LocalProvider
from harborrl_agent_server.settings import Settings
from harborrl_agent_server.snapshot import view
from support.agent_http import replies
from support.agent_server import MARKS, stage
from support.held_trials import held

pytestmark = MARKS


def run_at(registered: float = 100.0, **fields: Any) -> Run:
    return Run(RunRequest(instance_id="t", **fields), "bash", id="1", registered=registered)


def test_every_phase_before_the_end_can_be_cancelled_and_can_end() -> None:
    for phase in OWN_WAY:
        assert may_follow(phase, Phase.CANCELLING)
        assert STEPS[phase] >= ENDS


def test_a_cancelled_run_takes_no_step_of_its_own_any_more() -> None:
    for ended in (Phase.CANCELLING, Phase.FORCING, *ENDS):
        assert not STEPS[ended] & set(OWN_WAY)


def test_only_a_leak_that_the_reaper_mended_leaves_an_end() -> None:
    assert STEPS[Phase.LEAKED] == {Phase.DONE}
    assert not STEPS[Phase.DONE]


def test_a_hook_that_comes_after_the_cancel_changes_nothing() -> None:
    run = run_at()
    run.enter(Phase.STARTING, 101)
    run.enter(Phase.CANCELLING, 105)
    run.enter(Phase.GRADING, 106)
    assert (run.phase, run.entered[Phase.CANCELLING]) == (Phase.CANCELLING, 105)


def test_the_first_cause_stands() -> None:
    run = run_at()
    assert [run.cancel(cause) for cause in (Cause.FLUSH, Cause.SHUTDOWN)] == [True, False]
    assert run.cause is Cause.FLUSH


def test_a_view_tells_each_age_apart() -> None:
    run = run_at()
    for phase, moment in ((Phase.STARTING, 110), (Phase.SETUP, 120), (Phase.RUNNING, 130)):
        run.enter(phase, moment)
    seen = view(run, 142)
    assert (seen.age_s, seen.slot_age_s, seen.agent_age_s, seen.phase_age_s) == (42, 32, 12, 12)
    run.enter(Phase.GRADING, 150)
    assert view(run, 180).agent_age_s == 20


def test_a_finished_runs_ages_stand_still() -> None:
    run = run_at()
    run.enter(Phase.STARTING, 110)
    run.answer = refusal(ExitStatus.SANDBOX_UNAVAILABLE, "no")
    run.enter(Phase.DONE, 130)
    seen = view(run, 1000)
    assert (seen.age_s, seen.slot_age_s, seen.agent_age_s, seen.ended_s_ago) == (30, 20, None, 870)
    assert (seen.outcome, seen.reward) == ("SandboxUnavailable", None)


def test_a_view_is_a_value_that_holds_no_key_and_bounds_a_foreign_id() -> None:
    run = run_at(api_key="sk-secret", base_url="http://session/v1")
    assert "sk-secret" not in str(asdict(view(run, 101)))
    long = Run(RunRequest(instance_id="x" * 1000), "bash", id="1", registered=0)
    assert len(view(long, 1).instance_id) == 128
    with pytest.raises(FrozenInstanceError):
        view(run, 101).phase = Phase.DONE  # type: ignore[misc] # what the test is about


async def test_a_snapshot_shows_who_runs_who_waits_and_who_has_ended(tasks: Path) -> None:
    async with held(tasks, ("a", 1), ("b", 1), slots=1) as (server, gate, runs):
        seen = server.runs.snapshot()
        assert [(run.session, run.phase) for run in seen.live] == [("a", Phase.RUNNING), ("b", Phase.QUEUED)]
        assert (seen.capacity, seen.in_flight, seen.queued, seen.finished) == (1, 1, 1, ())
        assert seen.live[1].slot_age_s is None
        gate.opened.set()
        answer = await runs["a"][0]
        await runs["b"][0]
        after = server.runs.snapshot()
    assert after.live == ()
    assert [run.session for run in after.finished] == ["b", "a"]
    assert (after.finished[1].outcome, after.finished[1].trial_name) == ("Submitted", answer["trial_name"])
    assert (after.finished[1].reward, after.outcomes) == (0.0, {"Submitted": 2})


async def test_a_whole_trial_goes_through_every_phase_of_its_own_way(tasks: Path) -> None:
    async with stage(tasks, replies("")) as server:
        answer = await server.run(agent_name="oracle")
        record = json.loads((server.settings.trials_dir / answer["trial_name"] / "run.json").read_text())
    assert [Phase(name) for name in record["phase_starts"]] == [*OWN_WAY, Phase.DONE]
    assert list(record["phase_starts"].values()) == sorted(record["phase_starts"].values())
    assert record["cause"] is None


async def test_a_finished_run_keeps_neither_key_nor_trial(tasks: Path) -> None:
    async with stage(tasks, replies("TASK_DONE")) as server:
        await server.run(api_key="sk-secret")
        (run,) = server.runs._finished
    assert (run.trial, run.request.api_key, run.request.sampling_params) == (None, "", {})


async def test_only_the_last_finished_runs_are_remembered(tasks: Path) -> None:
    settings = Settings(tasks_dir=tasks, trials_dir=tasks.parent / "trials", sandbox="local")
    async with httpx.AsyncClient() as client:
        runs = Runs(settings, LocalProvider(), Gateway(lambda: client), Metrics())
        for number in range(REMEMBERED + 2):
            await runs.answer(runs.take(RunRequest(instance_id=f"none-{number}")), _never())
        seen = runs.snapshot()
    assert (len(seen.finished), seen.finished[0].instance_id) == (REMEMBERED, f"none-{REMEMBERED + 1}")


def _never() -> "asyncio.Future[None]":
    return asyncio.get_running_loop().create_future()
