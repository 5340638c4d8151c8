"""Our wrapper round Miles' own generate (`--custom-generate-function-path harborrl_trainer.miles.generate.generate`).

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

from harborrl_trainer.miles import process, samples, verdicts
from harborrl_trainer.miles.call import CURRENT, Call, NotWanted
from harborrl_trainer.miles.process import Process
from harborrl_trainer.miles.records import Entry, check_log
from harborrl_trainer.miles.settings import Settings
from harborrl_trainer.miles.supervise import supervise
from harborrl_trainer.rollout.agent_client import AgentServerError
from harborrl_trainer.rollout.outcomes import Verdict
from harborrl_trainer.rollout.reserved import without_reserved
from harborrl_trainer.rollout.trials import TrialEnd, TrialHistory, end_without_sample, run_trial

logger = logging.getLogger(__name__)


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
            room=self._rollouts.client.await_room,
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
            call.error = NotWanted(process.SURPLUS)
            return self._without_samples(call, verdicts.of_error(call), 0.0)
        started = self._rollouts.clock()
        self._rollouts.calls.add(call)
        try:
            output = await self._generate(call)
            return self._end(call, output, self._rollouts.clock() - started)
        except AgentServerError as error:
            call.error = call.error or error
            verdict = verdicts.of_error(call)
        except Exception as error:
            # Whatever breaks in Miles costs this sample, not the run.
            logger.warning("session %s: Miles' generate failed", call.session, exc_info=True)
            verdict = verdicts.of_breakage(call, error, self._rollouts.settings.on_agent_timeout)
        finally:
            self._rollouts.calls.discard(call)
        return self._without_samples(call, verdict, self._rollouts.clock() - started)

    async def _generate(self, call: Call) -> Any:
        token = CURRENT.set(call)
        try:  # a task copies the context it is made in
            work = asyncio.ensure_future(self._miles.generate(replace(self._given, sample=self._copy())))
        finally:
            CURRENT.reset(token)
        return await supervise(work, call, self._rollouts.settings.session_s, self._rollouts.abandon)

    def _copy(self) -> Any:
        sample = deepcopy(self._given.sample)
        sample.metadata = without_reserved(sample.metadata or {})
        return sample

    def _end(self, call: Call, output: Any, total_s: float) -> TrialEnd[Any]:
        found = output.samples if isinstance(output.samples, list) else [output.samples]
        status = call.reply.exit_status if call.reply else ""
        facts = samples.facts_of(found, getattr(self._given.args, "max_seq_len", None), status)
        verdict = verdicts.of_samples(call, facts, self._rollouts.settings.on_agent_timeout)
        samples.apply(verdict, found, call.reply, call.session)
        return replace(
            _end_of(call, verdict, output, total_s),
            turns=facts.turns,
            prompt_tokens=facts.prompt_tokens,
            response_tokens=facts.response_tokens,
            weight_version=facts.weight_version,
        )

    def _without_samples(self, call: Call, verdict: Verdict, total_s: float) -> TrialEnd[Any]:
        sample = self._copy()
        samples.apply(verdict, [sample], call.reply, call.session)
        several = getattr(self._given.args, "use_session_server", None) == "v2"
        return _end_of(call, verdict, self._miles.output(samples=[sample] if several else sample), total_s)


def _end_of(call: Call, verdict: Verdict, output: Any, total_s: float) -> TrialEnd[Any]:
    reply = call.reply
    return TrialEnd(
        verdict=verdict,
        outcome=verdict.outcome,
        session=call.session,
        payload=output,
        seconds={**(reply.phase_seconds if reply else {}), "total": total_s},
        agent_metrics=reply.agent_metrics if reply else {},
        may_run=call.error is not None and call.error.may_run,
    )
