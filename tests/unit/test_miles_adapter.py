"""Miles' side piece by piece: request, samples, reward, metrics, rollout function, and the last word of a process."""

import asyncio
import importlib
import inspect
import json
import math
from argparse import Namespace
from types import SimpleNamespace
from typing import Any

import pytest
from miles.utils.types import Sample

from harborrl_trainer.miles import at_exit, samples, verdicts
from harborrl_trainer.miles.call import Call
from harborrl_trainer.miles.evaluation import only_scored
from harborrl_trainer.miles.metrics import aggregate
from harborrl_trainer.miles.process import GaveUp
from harborrl_trainer.miles.request import build_request, plain, session_of
from harborrl_trainer.miles.reward import reward_func
from harborrl_trainer.miles.rollout_fn import RolloutFn
from harborrl_trainer.miles.settings import Settings
from harborrl_trainer.rollout.groups import EveryGroupAborted
from harborrl_trainer.rollout.outcomes import TrialReply, Verdict
from harborrl_trainer.rollout.reserved import RESERVED, without_reserved
from support.faulty_agents import FaultyAgents
from support.miles_double_edition import DOUBLE
from support.miles_harness import ON_PATH, stage
from support.raw_http import serving

FROM_MILES = {
    "instance_id": "t",
    "difficulty": "any",
    "max_seq_len": 65536,
    "session_server_id": "10.0.0.1:30000",
    "session_server_instance_id": "abc",
}


def test_a_request_is_the_contracts_under_the_host_that_agents_reach() -> None:
    settings = Settings(external_host="x-trainer.ns.svc", model_name="glm", agent_name="bash")
    request = build_request("http://10.0.0.1:30000/sessions/s1", {"max_tokens": 64}, FROM_MILES, settings)
    assert request == {
        "instance_id": "t",
        "difficulty": "any",
        "agent_name": "bash",
        "base_url": "http://x-trainer.ns.svc:30000/sessions/s1/v1",
        "model": "openai/glm",
        "sampling_params": {"max_tokens": 64},
        "max_seq_len": 65536,
        "session_server_id": "x-trainer.ns.svc:30000",
        "session_server_instance_id": "abc",
    }


def test_without_another_host_miles_own_address_is_sent_and_nothing_is_made_up() -> None:
    request = build_request("http://10.0.0.1:30000/sessions/s1", {}, {"agent_name": "own"}, Settings())
    assert request == {
        "agent_name": "own",
        "base_url": "http://10.0.0.1:30000/sessions/s1/v1",
        "model": "openai/model",
        "sampling_params": {},
    }


def test_a_session_is_named_by_the_end_of_its_url() -> None:
    assert session_of("http://10.0.0.1:30000/sessions/s1") == "s1"
    assert session_of("http://[::1]:30000/sessions/s1/") == "s1"


@pytest.mark.parametrize("prefix", ["harborrl_trainer.miles.", ""])
def test_the_names_that_miles_arguments_take_are_there(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ON_PATH)
    for module, name in [("generate", "reward_func"), ("generate", "RolloutFn"), ("swe_agent_function", "run")]:
        assert callable(getattr(importlib.import_module(prefix + module), name))
    assert callable(importlib.import_module(f"{prefix}swe_agent_function").abort)
    generate: Any = importlib.import_module(f"{prefix}generate").generate
    assert callable(generate.add_arguments)
    assert inspect.isclass(generate)  # Miles makes it at the start


def test_a_request_carries_none_of_a_data_sets_reserved_columns() -> None:
    leak: dict[str, Any] = dict.fromkeys(RESERVED - {"max_seq_len"}, "data set")
    leak |= {"session_server_id": None, "session_server_instance_id": None}
    request = build_request("http://10.0.0.1:30000/sessions/s1", {}, {"instance_id": "t", **leak}, Settings())
    assert set(request) == {"instance_id", "base_url", "model", "sampling_params"}
    assert "data set" not in request.values()


async def test_no_reserved_key_of_a_data_set_reaches_the_agent_server_or_the_sample() -> None:
    leak: dict[str, Any] = dict.fromkeys(RESERVED, "data set")
    async with stage(DOUBLE) as on:
        for fault in ("good", "http-500"):
            sample = await on.generate(on.sample(fault, **leak))
            assert "data set" not in sample.metadata.values()
        assert all("data set" not in request.values() for request in on.agents.requests)


async def test_a_data_sets_reward_is_not_that_of_a_trial_that_failed() -> None:
    async with stage(DOUBLE) as on:
        sample = await on.generate(on.sample("http-500", reward=1.0))
        assert (sample.metadata["reward"], sample.reward, sample.status.value) == (None, None, "aborted")
        assert await reward_func(on.args, sample) == 0.0
        assert sample.status.value == "aborted"


async def test_the_input_sample_is_left_as_miles_made_it() -> None:
    """Miles puts it back for another try where it is told to retry."""
    async with stage(DOUBLE) as on:
        given = on.sample("lost", reward=1.0)
        await on.generate(given)
        assert (given.status.value, given.metadata) == ("pending", {"instance_id": "lost", "reward": 1.0})


async def test_the_reward_is_what_the_verdict_says_for_one_sample_and_for_many() -> None:
    async with stage(DOUBLE) as on:
        good = await on.generate(on.sample("good"))
        lost = await on.generate(on.sample("lost", group=1))
        assert await reward_func(on.args, good) == 0.5
        assert await reward_func(on.args, [good, lost]) == [0.5, 0.0]
        assert (good.status.value, lost.status.value) == ("completed", "aborted")


async def test_a_sample_without_a_verdict_is_made_aborted_by_the_reward() -> None:
    sample = Sample(status=Sample.Status.COMPLETED, metadata={"reward": 1.0})
    assert await reward_func(None, sample) == 0.0
    assert (sample.status, sample.remove_sample) == (Sample.Status.ABORTED, True)


async def test_an_evaluations_trial_is_logged_as_such_and_costs_no_group() -> None:
    async with stage(DOUBLE, settings={"give_up_groups": 1}) as on:
        await on.generate(on.sample("lost"), evaluation=True)
        await on.generate(on.sample("good"), evaluation=True)
        records = on.records()
        assert [(record["evaluation"], record["kept"]) for record in records] == [(True, False), (True, True)]
        assert on.process.ledger.counts()["groups_dropped"] == 0


async def test_two_samples_of_one_trial_share_its_fate() -> None:
    """Miles' second session server makes several of one trajectory."""
    aborted = Sample(tokens=[1, 2], response_length=1, status=Sample.Status.ABORTED)
    whole = Sample(tokens=[1, 2, 3], response_length=2, status=Sample.Status.COMPLETED, reward=1.0)
    facts = samples.facts_of([whole, aborted], None, "Submitted")
    assert (facts.turns, facts.aborted) == (2, True)
    samples.apply(Verdict("aborted", None, "x"), [whole, aborted], None, "s")
    assert [sample.reward for sample in (whole, aborted)] == [None, None]


@pytest.mark.parametrize(
    ("max_seq_len", "exit_status", "expected"),
    [
        (None, "Submitted", (True, False)),
        (4, "Submitted", (False, True)),
        (None, "SequenceLengthLimitExceeded", (False, True)),
    ],
)
def test_miles_3337_a_sample_that_ends_before_its_session_did_is_not_a_completed_one(
    max_seq_len: int | None, exit_status: str, expected: tuple[bool, bool]
) -> None:
    """With routing replay Miles stops merging before an aborted turn, and calls the rest completed."""
    cut = Sample(tokens=[1, 2, 3], response_length=2, status=Sample.Status.COMPLETED)
    cut.metadata["accumulated_token_ids"] = [1, 2, 3, 4, 5]
    facts = samples.facts_of([cut], max_seq_len, exit_status)
    assert (facts.aborted, facts.truncated) == expected


def test_a_status_that_miles_does_not_know_is_not_trained_on() -> None:
    assert samples.facts_of([Sample(tokens=[1], response_length=1)], None, "Submitted").aborted


def call(reply: TrialReply | None = None) -> Call:
    one = Call(60)
    one.reply = reply
    return one


def graded(exit_status: str = "Submitted", **more: Any) -> TrialReply:
    return TrialReply(exit_status, reward=0.5, eval_report={"reward": 0.5}, agent_metrics={"turns": 2}, **more)


def test_a_trial_of_several_turns_of_which_no_sample_came_was_not_collected() -> None:
    verdict = verdicts.of_samples(call(graded()), samples.Facts(), "grade")
    assert (verdict.status, verdict.outcome, verdict.retryable) == ("aborted", "CollectFailed", True)


def test_a_trial_whose_prompt_alone_is_too_long_is_not_run_again() -> None:
    assert not verdicts.of_samples(call(graded("SequenceLengthLimitExceeded")), samples.Facts(), "grade").retryable


def test_what_went_wrong_with_the_trial_is_told_before_what_miles_broke_on() -> None:
    lost = call(TrialReply("SandboxLost", infra_failure=True))
    assert verdicts.of_breakage(lost, AssertionError("trim"), "grade").outcome == "SandboxLost"
    assert verdicts.of_breakage(call(graded()), AssertionError("trim"), "grade").cause == (
        "CollectFailed: AssertionError: trim"
    )
    assert verdicts.of_breakage(call(), ConnectionError("refused"), "grade").outcome == "SessionFailed"


def test_an_agent_function_that_broke_leaves_no_sample_to_train_on() -> None:
    assert verdicts.of_samples(call(), samples.Facts(turns=3), "grade").outcome == "NoReply"


async def test_whatever_breaks_in_the_samples_costs_one_sample() -> None:
    async with stage(DOUBLE) as on:
        odd = on.sample("good")
        odd.weight_versions = 7
        sample = await on.generate(odd)
        assert (sample.status.value, sample.metadata["exit_status"]) == ("aborted", "CollectFailed")


def test_a_report_becomes_plain_json_and_tool_time_is_told_in_miles_word() -> None:
    reply = TrialReply("Submitted", eval_report={"a": [math.nan, 1]}, agent_metrics={"env_execution_time_sum": 2.5})
    metadata = samples.result_metadata(Verdict("completed", 0.5), reply, "s")
    assert json.loads(json.dumps(metadata, allow_nan=False)) == metadata
    assert (metadata["eval_report"], metadata["agent_metrics"]["total_tool_time"]) == ({"a": [None, 1]}, 2.5)
    odd = TrialReply("Submitted", agent_metrics={"total_tool_time": "long"})
    assert "total_tool_time" not in samples.result_metadata(Verdict("completed", 0.5), odd, "s")["agent_metrics"]
    assert plain((1, {2: math.inf})) == [1, {"2": None}]


def test_means_are_over_those_who_report() -> None:
    reports = [{"turns": 2, "total_time": 10.0}, {"turns": 4, "tool_calls": 3, "eval_time": math.nan}, {}, None, "x"]
    assert aggregate(reports) == {
        "agent/turns_mean": 3.0,
        "agent/turns_sum": 6.0,
        "agent/tool_calls_mean": 3.0,
        "agent/tool_calls_sum": 3.0,
        "agent/total_time_mean": 10.0,
        "agent/total_time_max": 10.0,
        "agent/total_time_min": 10.0,
    }
    assert aggregate([]) == {}


def rollout_fn(call: Any, **args: Any) -> RolloutFn:
    """Ours round an inner one that does as the test says."""

    class Inner:
        def __init__(self, _: Any) -> None:
            self.state = SimpleNamespace(args=Namespace(**args))
            self.data_source = "the inner one's"

        async def __call__(self, input: Any) -> Any:  # noqa: A002 - Miles'
            return await call(input)

    return RolloutFn(None, load=lambda: Inner)


async def test_a_group_that_is_whole_and_not_used_is_counted_and_logged_as_dropped() -> None:
    async with stage(DOUBLE) as on:

        async def collect(_: Any) -> Any:
            done = [await on.generate(on.sample("good", group=at, index=at)) for at in range(2)]
            return SimpleNamespace(samples=[[done[0]]], metrics={"rollout/x": 1})

        output = await rollout_fn(collect)(SimpleNamespace(rollout_id=5, evaluation=False))
        assert (output.metrics["rollout/x"], output.metrics["agent/turns_mean"]) == (1, 2.0)
        assert (output.metrics["harborrl/groups_kept"], output.metrics["harborrl/dropped/Unused"]) == (1, 1)
        records = [(record["rollout_id"], record["group_id"], record["kept"]) for record in on.records()]
        assert records == [(5, 0, True), (5, 1, False)]


async def test_a_rollout_that_breaks_off_writes_what_it_held_back() -> None:
    async with stage(DOUBLE) as on:

        async def breaks(_: Any) -> Any:
            await on.generate(on.sample("good"))
            raise RuntimeError("engine gone")

        with pytest.raises(RuntimeError):
            await rollout_fn(breaks)(SimpleNamespace(rollout_id=0, evaluation=False))
        assert [record["drop_reason"] for record in on.records()] == ["the rollout broke off"]


async def test_giving_up_reaches_ray_as_an_ordinary_error() -> None:
    async def gives_up(_: Any) -> Any:
        raise GaveUp("all 4 groups had an aborted trial")

    async with stage(DOUBLE):
        with pytest.raises(EveryGroupAborted, match="all 4 groups"):
            await rollout_fn(gives_up)(SimpleNamespace(rollout_id=0, evaluation=False))


async def test_an_evaluations_output_is_left_whole_for_miles_dump() -> None:
    async def evaluate(_: Any) -> Any:
        return SimpleNamespace(data={"held out": {"rewards": [1.0, None]}}, metrics=None)

    async with stage(DOUBLE):
        output = await rollout_fn(evaluate)(SimpleNamespace(rollout_id=3, evaluation=True))
        assert output.data == {"held out": {"rewards": [1.0, None]}}


@pytest.mark.parametrize(("log_passrate", "left"), [(False, [1.0, 0.0, 1.0]), (True, [0.0, 1.0])])
def test_an_evaluation_is_the_mean_of_the_trials_that_have_a_reward(log_passrate: bool, left: list[float]) -> None:
    args = Namespace(log_passrate=log_passrate, n_samples_per_eval_prompt=2)
    whole = {"rewards": [1.0, None, 0.0, 1.0], "truncated": [False] * 4, "samples": list("abcd")}
    data: dict[str, Any] = {"held out": whole, "all lost": {"rewards": [None], "samples": ["e"]}}
    assert only_scored(3, args, data, None) is False
    assert list(data) == ["held out"]
    assert data["held out"]["rewards"] == left
    assert len(data["held out"]["samples"]) == len(data["held out"]["truncated"]) == len(left)


async def test_every_other_attribute_is_that_of_miles_own_rollout_function() -> None:
    async def nothing(_: Any) -> Any: ...

    assert rollout_fn(nothing).data_source == "the inner one's"


async def test_a_process_that_leaves_flushes_once_and_does_not_insist() -> None:
    agents = FaultyAgents()
    async with serving(agents.handle) as port:
        settings = Settings(agent_server_url=f"http://127.0.0.1:{port}", admin_secret="s3")
        await asyncio.to_thread(at_exit.flush_now, settings, ["a", "b"])
    assert agents.flushed == [{"session_server_instance_ids": ["a", "b"]}]
    assert agents.authorization == ["Bearer s3"]
    await asyncio.to_thread(at_exit.flush_now, settings, ["a"])  # nobody listens any more
    await asyncio.to_thread(at_exit.flush_now, settings, [])


async def test_trials_in_flight_when_the_process_leaves_are_flushed_at_every_session_server() -> None:
    async with stage(DOUBLE, session_server_instance_ids={}) as on:
        on.args.session_server_instance_ids = {on.sessions.port: "a", 1: "b"}
        await on.generate(on.sample("good"))
        on.agents.started.clear()
        await asyncio.to_thread(on.process._leave)
        assert on.agents.flushed == []  # nothing is left to cancel
        trial = asyncio.create_task(on.generate(on.sample("timeout")))
        await on.agents.started.wait()
        await asyncio.to_thread(on.process._leave)
        assert on.agents.flushed == [{"session_server_instance_ids": ["a", "b"]}]
        trial.cancel()


async def test_a_server_that_does_not_say_its_capacity_leaves_the_jobs_own_bound() -> None:
    agents = FaultyAgents(health={"status": "ok"})
    async with stage(DOUBLE, agents, settings={"max_in_flight": 3}) as on:
        await asyncio.gather(*(on.generate(on.sample("good", group=at)) for at in range(9)))
        assert agents.widest == 3


async def test_the_places_follow_the_agent_servers_capacity() -> None:
    async with stage(DOUBLE, FaultyAgents(capacity=2), settings={"max_in_flight": 50}) as on:
        await asyncio.gather(*(on.generate(on.sample("good", group=at)) for at in range(6)))
        assert on.agents.widest == 2


def test_a_column_that_only_sounds_like_a_reserved_one_stays() -> None:
    assert without_reserved({"reward_model": 1, "reward": 2, "modelcard": 3, "model": 4}) == {
        "reward_model": 1,
        "modelcard": 3,
    }
