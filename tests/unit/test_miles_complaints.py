"""What users of Miles have complained about in public, one test each: the wrapper over sockets, with Miles' double.

Named as repository#number. The outcomes of a broken agent server are in tests/contract/test_rollout_faults.py.
"""

import asyncio
import json
import urllib.request
from argparse import Namespace
from pathlib import Path

import pytest

from harborrl_trainer.miles import swe_agent_function
from harborrl_trainer.miles.process import GaveUp
from support.faulty_agents import FaultyAgents
from support.launches import launched, plain
from support.miles_double_edition import DOUBLE
from support.miles_harness import stage


async def test_miles_2228_the_ceiling_is_the_jobs_and_the_agent_server_is_told_it() -> None:
    async with stage(DOUBLE, settings={"ceiling_s": 10800}) as on:
        await on.generate(on.sample("good"))
        assert on.agents.requests[0]["deadline_s"] == 10800


async def test_miles_2228_the_clock_of_a_trial_does_not_run_while_it_waits_for_its_place() -> None:
    async with stage(DOUBLE, FaultyAgents(capacity=1), settings={"ceiling_s": 1000}) as on:
        clock = on.process.clock
        on.process.clock = lambda: clock() + 500 * len(on.agents.requests)
        done = await asyncio.gather(*(on.generate(on.sample("good", group=at)) for at in range(3)))
        assert [sample.status.value for sample in done] == ["completed"] * 3
        assert (on.agents.widest, [request["deadline_s"] for request in on.agents.requests]) == (1, [1000] * 3)


async def test_miles_1012_a_trial_that_is_given_up_frees_its_slot_and_its_lost_group_is_counted_by_cause() -> None:
    async with stage(DOUBLE, settings={"ceiling_s": 0.5}, n_samples_per_prompt=3) as on:
        faults = ["zero", "timeout", "zero"]
        await asyncio.gather(*(on.generate(on.sample(fault, index=at)) for at, fault in enumerate(faults)))
        counts, records = on.process.ledger.counts(), on.records()
        assert (counts["groups_dropped"], counts["dropped/TrialCeilingExceeded"]) == (1, 1)
        assert {record["drop_reason"].partition(":")[0] for record in records} == {"group has 1 of 3 aborted"}
        assert [record["kept"] for record in records] == [False] * 3
        await on.agents.departed.wait()


@pytest.mark.parametrize(
    ("names", "flushed"),
    [
        ({"session_server_instance_ids": {30000: "a", 30001: "b"}}, ["a", "b"]),
        ({"session_server_instance_id": "old", "session_server_instance_ids": None}, ["old"]),
        ({"session_server_instance_ids": ["a", "b"]}, ["a", "b"]),
    ],
)
async def test_miles_2748_the_flush_names_every_session_server_on_new_and_old_versions(
    names: dict[str, object], flushed: list[str]
) -> None:
    async with stage(DOUBLE) as on:
        await swe_agent_function.abort(Namespace(**names))
        assert on.agents.flushed == [{"session_server_instance_ids": flushed}]
        assert on.agents.authorization == ["Bearer s3"]


async def test_miles_2748_an_answer_that_comes_after_the_flush_is_not_trained_on() -> None:
    async with stage(DOUBLE, n_samples_per_prompt=2) as on:
        trial = asyncio.create_task(on.generate(on.sample("after-cancel")))
        await on.agents.started.wait()
        on.state.aborted = True
        await swe_agent_function.abort(on.args)
        sample = await trial
        assert (sample.status.value, sample.reward, sample.remove_sample) == ("aborted", None, True)
        assert on.process.ledger.counts()["aborted/NotWanted"] == 1
        [record] = on.records()
        assert record["drop_reason"].startswith("not wanted: enough groups were collected")


async def test_miles_2748_groups_that_are_not_wanted_any_more_do_not_count_towards_giving_up() -> None:
    async with stage(DOUBLE, settings={"give_up_groups": 1}) as on:
        trial = asyncio.create_task(on.generate(on.sample("timeout")))
        await on.agents.started.wait()
        on.state.aborted = True
        await swe_agent_function.abort(on.args)
        assert (await trial).status.value == "aborted"
        assert on.process.over is None
        assert on.process.ledger.counts()["dropped/NotWanted"] == 1


async def test_miles_2748_a_version_without_the_hook_is_watched_for_its_abort() -> None:
    async with stage(DOUBLE) as on:
        trial = asyncio.create_task(on.generate(on.sample("timeout")))
        await on.agents.started.wait()
        on.state.aborted = True
        assert (await trial).metadata["exit_status"] == "NotWanted"
        await on.agents.cancelled.wait()
        assert (await on.generate(on.sample("good"))).status.value == "aborted"
        assert len(on.agents.requests) == 1  # and none is begun any more


@pytest.mark.parametrize(("broken", "told"), [("open-hangs", "opened no session"), ("collect-hangs", "no samples")])
async def test_miles_868_a_session_request_that_hangs_costs_its_sample_and_not_the_step(broken: str, told: str) -> None:
    async with stage(DOUBLE, settings={"session_s": 0.3, "budget_s": 7000, "ceiling_s": 7000}) as on:
        on.sessions.server.broken = broken
        sample = await on.generate(on.sample("good"))
        assert sample.metadata["exit_status"] == "SessionServerSilent"
        assert told in sample.metadata["harborrl"]["cause"]


async def test_miles_888_a_trial_whose_session_server_was_restarted_runs_again_in_a_fresh_session() -> None:
    async with stage(DOUBLE) as on:
        sample = await on.generate(on.sample("session-lost"))
        first, second = (request["base_url"] for request in on.agents.requests)
        assert (sample.status.value, first != second) == ("completed", True)
        [record] = on.records()
        assert record["replaced"]["outcome"] == "ModelEndpointFailed"


@pytest.mark.parametrize(("broken", "outcome"), [("open", "SessionFailed"), ("collect", "CollectFailed")])
async def test_stitch_146_an_error_of_the_session_server_does_not_reach_miles_loop(broken: str, outcome: str) -> None:
    async with stage(DOUBLE) as on:
        on.sessions.server.broken = broken
        sample = await on.generate(on.sample("good"))
        assert (sample.status.value, sample.metadata["exit_status"]) == ("aborted", outcome)
        assert on.process.ledger.counts()["trials_rerun"] == 1


async def test_slime_1026_a_proxy_variable_does_not_come_between_trainer_and_agent_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with stage(DOUBLE) as on:
        assert (await on.generate(on.sample("good"))).status.value == "completed"


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"])
def test_slime_1026_no_proxy_comes_between_the_parts_of_miles_which_go_by_pod_address(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """By what httpx and requests both ask; a list of names in no_proxy excepts no address."""
    for each in {*urllib.request.getproxies(), "http", "all"}:
        monkeypatch.delenv(f"{each}_proxy", raising=False)
        monkeypatch.delenv(f"{each.upper()}_PROXY", raising=False)
    monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    made = launched(plain(envNames=[name, "HTTPS_PROXY"]))
    for variable, value in made.env.items():
        monkeypatch.setenv(variable, value)
    assert urllib.request.getproxies().keys() - {"no"} == {"https"}
    assert [note.what for note in made.adjustments if "proxy" in note.what.lower()] == [f"trainer.env {name}"]


async def test_verifiers_2414_a_cancelled_trial_leaves_nothing_running() -> None:
    async with stage(DOUBLE) as on:
        trial = asyncio.create_task(on.generate(on.sample("timeout")))
        await on.agents.started.wait()
        trial.cancel()
        with pytest.raises(asyncio.CancelledError):
            await trial
        await on.agents.departed.wait()
        assert on.process.ledger.counts()["aborted/Cancelled"] == 1
        assert [record["outcome"] for record in on.records()] == ["Cancelled"]


async def test_verl_3895_a_run_in_which_every_group_aborts_ends_and_says_why(tmp_path: Path) -> None:
    verdict = tmp_path / "new" / "verdict.json"
    async with stage(DOUBLE, settings={"give_up_groups": 3, "verdict_file": verdict}) as on:
        await on.generate(on.sample("http-500", group=0))
        await on.generate(on.sample("http-500", group=1))
        with pytest.raises(GaveUp, match="all 3 groups had an aborted trial"):
            await on.generate(on.sample("http-500", group=2))
        with pytest.raises(GaveUp):
            await on.generate(on.sample("good", group=3))
        assert json.loads(verdict.read_text())["exitCode"] == 69
        assert on.agents.runs_of("good") == 0


async def test_verl_3895_what_no_retry_heals_is_told_as_a_configuration_error(tmp_path: Path) -> None:
    verdict = tmp_path / "verdict.json"
    async with stage(DOUBLE, settings={"give_up_groups": 1, "verdict_file": verdict}) as on:
        with pytest.raises(GaveUp, match="no task 'x'"):
            await on.generate(on.sample("task-missing"))
        assert json.loads(verdict.read_text())["exitCode"] == 64


async def test_a_kept_group_in_between_lets_the_run_go_on() -> None:
    async with stage(DOUBLE, settings={"give_up_groups": 2}) as on:
        for group, fault in enumerate(["lost", "good", "lost", "good"]):
            await on.generate(on.sample(fault, group=group))
        assert on.process.over is None
