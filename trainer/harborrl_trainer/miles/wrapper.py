"""Our wrapper round Miles' own generate (`--custom-generate-function-path harborrl_trainer.miles.wrapper.Generate`).

Miles' generate opens a session, calls the agent function, and turns the session into samples. Around it stand what it
has not: the mapping of outcomes to statuses, a second run where infrastructure failed the first, bounds on the session
server, the trial log, and the end of a run in which every group aborts. Nothing of this may live in a rollout function
alone: with `--fully-async` Miles takes none.
"""

import argparse
import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from harborrl_trainer.miles import process, samples
from harborrl_trainer.miles.call import CURRENT, Call, NotWanted
from harborrl_trainer.miles.process import Process
from harborrl_trainer.miles.records import Entry, check_log
from harborrl_trainer.miles.settings import Settings
from harborrl_trainer.miles.supervise import supervise
from harborrl_trainer.rollout.agent_client import AgentServerError
from harborrl_trainer.rollout.outcomes import Verdict, aborted, judge
from harborrl_trainer.rollout.reserved import without_reserved
from harborrl_trainer.rollout.trials import (
    TrialEnd,
    TrialHistory,
    end_without_reply,
    end_without_sample,
    run_trial,
)

logger = logging.getLogger(__name__)

COLLECT_FAILED = "CollectFailed"


@dataclass(frozen=True)
class Miles:
    """The two names that are taken from Miles."""

    generate: Callable[[Any], Awaitable[Any]]
    output: Callable[..., Any]


def installed() -> Miles:
    """Not at import: Miles is there when it calls us."""
    return Miles(
        generate=import_module("miles.rollout.generate_hub.agentic_tool_call").generate,
        output=import_module("miles.rollout.base_types").GenerateFnOutput,
    )


class Generate:
    """Miles makes one when its rollout manager starts. What cannot work ends the run there and then.

    Raises SettingsError for the environment, OSError for a trial log that cannot be written.
    """

    def __init__(self, load: Callable[[], Miles] = installed) -> None:
        check_log(Settings.from_environment(os.environ))
        self._miles = load()

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        """Miles' own arguments of its agentic generate, this version's."""
        generate: Any = installed().generate
        generate.add_arguments(parser)

    async def __call__(self, input: Any) -> Any:  # noqa: A002 - Miles tells new from old generate functions by this name
        """GenerateFnInput -> GenerateFnOutput, always with a sample. Raises GaveUp when the run cannot go on."""
        rollouts = process.current(process.from_environment)
        rollouts.knows(input.args)
        rollouts.records.shape(input.args)
        await rollouts.ready()
        trial = Trial(rollouts, self._miles, input)
        try:
            history = await trial.run()
        except asyncio.CancelledError as error:
            rollouts.records.ended(
                trial.entry(TrialHistory(end_without_sample(error, ""))), evaluation=input.evaluation
            )
            raise
        hopeless = rollouts.records.ended(trial.entry(history), evaluation=input.evaluation)
        if hopeless is not None:
            raise await rollouts.give_up(hopeless)
        return history.final.payload


class Trial:
    """One sample of Miles, in one or two runs."""

    def __init__(self, rollouts: Process, miles: Miles, given: Any) -> None:
        self._rollouts = rollouts
        self._miles = miles
        self._given = given

    async def run(self) -> TrialHistory[Any]:
        settings = self._rollouts.settings
        return await run_trial(
            self._run_once,
            places=self._rollouts.places,
            ceiling_s=settings.ceiling_s,
            clock=self._rollouts.clock,
            counter=self._rollouts.ledger,
            needed_s=settings.budget_s,
            wanted=lambda: not self._unwanted(),
        )

    def entry(self, history: TrialHistory[Any]) -> Entry:
        sample = self._given.sample
        instance = str((sample.metadata or {}).get("instance_id", ""))
        group = sample.index if sample.group_index is None else sample.group_index
        return Entry(group or 0, sample.index or 0, instance, history)

    def _unwanted(self) -> bool:
        return self._rollouts.over is not None or bool(getattr(self._given.state, "aborted", False))

    async def _run_once(self, _run: int, ceiling_s: float) -> TrialEnd[Any]:
        """Always ends with samples of Miles: aborted copies of the input where there are no others."""
        call = Call(ceiling_s, evaluation=bool(self._given.evaluation), unwanted=self._unwanted)
        if self._unwanted():
            return self._without_samples(end_without_reply(NotWanted(process.SURPLUS), ""))
        started = self._rollouts.clock()
        self._rollouts.calls.add(call)
        try:
            output = await self._generate(call)
        except AgentServerError as error:
            return self._without_samples(end_without_reply(error, call.session))
        except Exception as error:
            # Whatever breaks in Miles costs this sample, not the run.
            logger.warning("session %s: Miles' generate failed", call.session, exc_info=True)
            return self._without_samples(self._broken(call, error))
        finally:
            self._rollouts.calls.discard(call)
        return self._end(call, output, self._rollouts.clock() - started)

    async def _generate(self, call: Call) -> Any:
        sample = deepcopy(self._given.sample)
        sample.metadata = without_reserved(sample.metadata or {})
        token = CURRENT.set(call)
        try:  # a task copies the context it is made in
            work = asyncio.ensure_future(self._miles.generate(replace(self._given, sample=sample)))
        finally:
            CURRENT.reset(token)
        return await supervise(work, call, self._rollouts.settings.session_s, self._rollouts.abandon)

    def _end(self, call: Call, output: Any, total_s: float) -> TrialEnd[Any]:
        found = output.samples if isinstance(output.samples, list) else [output.samples]
        reply = call.reply
        status = reply.exit_status if reply else ""
        facts = samples.facts_of(found, getattr(self._given.args, "max_seq_len", None), status)
        verdict = self._verdict(call, facts)
        samples.apply(verdict, found, reply, call.session)
        return TrialEnd(
            verdict=verdict,
            outcome=verdict.outcome,
            session=call.session,
            payload=output,
            seconds={**(reply.phase_seconds if reply else {}), "total": total_s},
            turns=facts.turns,
            prompt_tokens=facts.prompt_tokens,
            response_tokens=facts.response_tokens,
            weight_version=facts.weight_version,
            agent_metrics=reply.agent_metrics if reply else {},
        )

    def _verdict(self, call: Call, facts: samples.Facts) -> Verdict:
        if call.error is not None:
            end = end_without_reply(call.error, call.session)
            return replace(end.verdict, outcome=end.outcome)
        if call.reply is None:
            return aborted("the agent function was not called or broke: see the log", outcome="NoReply")
        verdict = judge(
            call.reply,
            on_agent_timeout=self._rollouts.settings.on_agent_timeout,
            turns=facts.turns,
            cut_by_length=facts.truncated,
            generation_aborted=facts.aborted,
        )
        if facts.turns == 0 and call.reply.agent_metrics.get("turns") and verdict.outcome == call.reply.exit_status:
            return _not_collected(call, verdict)
        return verdict

    def _broken(self, call: Call, error: Exception) -> TrialEnd[Any]:
        """Miles raised, mostly in collecting. What went wrong with the trial itself comes first."""
        if call.error is not None:
            return end_without_reply(call.error, call.session)
        if call.reply is not None:
            verdict = judge(call.reply, on_agent_timeout=self._rollouts.settings.on_agent_timeout, turns=1)
            if verdict.status == "aborted":
                return TrialEnd(verdict, outcome=verdict.outcome, session=call.session)
            name = COLLECT_FAILED
        else:
            name = "SessionFailed"
        text = " ".join(str(error).split())[:300]
        return TrialEnd(aborted(f"{name}: {type(error).__name__}: {text}"), outcome=name, session=call.session)

    def _without_samples(self, end: TrialEnd[Any]) -> TrialEnd[Any]:
        sample = deepcopy(self._given.sample)
        sample.metadata = without_reserved(sample.metadata or {})
        samples.apply(replace(end.verdict, outcome=end.outcome), [sample], None, end.session)
        several = getattr(self._given.args, "use_session_server", None) == "v2"
        return replace(end, payload=self._miles.output(samples=[sample] if several else sample))


def _not_collected(call: Call, verdict: Verdict) -> Verdict:
    """The agent made model calls, and the session server had no sample of them."""
    if verdict.status == "aborted" and "without a model call" not in verdict.cause:
        return verdict
    return aborted(
        f"{COLLECT_FAILED}: no sample of a trial with {call.reply.agent_metrics['turns']} turns: the session was not "
        "handed over, or its prompt alone exceeds max_seq_len"
        if call.reply
        else "",
        outcome=COLLECT_FAILED,
    )
