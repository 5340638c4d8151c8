"""The life of a run: registered, queued, running, over. The first cause to end it wins; no caller owns the teardown."""

import asyncio
import contextlib
import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from functools import partial

import httpx

from harborrl_agent_server.admission import Slots
from harborrl_agent_server.agents.registry import InvalidAgentError, agent_config
from harborrl_agent_server.bounded import finish, keep
from harborrl_agent_server.contract import ExitStatus, FlushResponse, RunRequest, RunResponse
from harborrl_agent_server.endpoints import EndpointRefusedError
from harborrl_agent_server.metrics import Metrics
from harborrl_agent_server.outcomes import Cause, Verdict, judge
from harborrl_agent_server.phases import Phase
from harborrl_agent_server.run import Run
from harborrl_agent_server.scope import SandboxProvider
from harborrl_agent_server.sessions import SessionTakenError, recorded_answer, run_id, trial_name
from harborrl_agent_server.settings import Settings
from harborrl_agent_server.snapshot import SHOWN, Snapshot, view
from harborrl_agent_server.tasks import InvalidInstanceIdError, TaskNotFoundError, task_directory
from harborrl_agent_server.trial import BadTaskError, TrialExistsError, TrialRun

LOG = logging.getLogger(__name__)

FLUSH_WAIT_SECONDS = 10.0
"""How long `/flush` waits for cancelled trials before it counts them as pending."""

FORCE_SECONDS = 30.0
"""After the cleanup budget: how long a sandbox removed behind Harbor's back may hold its slot."""

REMEMBERED = 200
"""Finished runs that can still be seen, some hundred bytes each."""

REFUSALS: dict[type[Exception], ExitStatus] = {
    InvalidInstanceIdError: ExitStatus.INVALID_INSTANCE_ID,
    TaskNotFoundError: ExitStatus.TASK_NOT_FOUND,
    BadTaskError: ExitStatus.TASK_NOT_FOUND,
    InvalidAgentError: ExitStatus.INVALID_AGENT,
    EndpointRefusedError: ExitStatus.MODEL_ENDPOINT_FAILED,
}


class LeavingError(Exception):
    """No new run is started here."""


class Runs:
    """All runs of this server."""

    def __init__(
        self,
        settings: Settings,
        provider: SandboxProvider,
        model_client: httpx.AsyncClient,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self.provider = provider
        self.model_client = model_client
        self.metrics = metrics
        self.slots = Slots(settings.max_concurrent)
        self.live: set[Run] = set()
        self.outcomes: Counter[str] = Counter()
        self.draining = False
        """No new runs: those that are live are about to be cancelled, or the last that this server will see."""
        self.leaked = 0
        self._clock = clock
        self._finished: deque[Run] = deque(maxlen=REMEMBERED)

    def oldest_s(self) -> float | None:
        started = [run.admitted for run in self.live if run.admitted is not None]
        return self._clock() - min(started) if started else None

    def snapshot(self) -> Snapshot:
        """All live runs and the last finished ones, as values."""
        now = self._clock()
        return Snapshot(
            live=tuple(view(run, now) for run in sorted(self.live, key=lambda run: run.registered)),
            finished=tuple(view(run, now) for run in reversed(self._finished)),
            outcomes=dict(self.outcomes),
            capacity=self.slots.capacity,
            in_flight=self.slots.taken,
            queued=self.slots.queued,
            leaked=self.leaked,
        )

    def _enter(self, run: Run, phase: Phase) -> None:
        run.enter(phase, self._clock())

    def find(self, request: RunRequest) -> Run | RunResponse | None:
        """What there is of this session's trial: the live run, or the answer of one that is over.

        Raises `SessionTakenError` when the session's live trial is of another task.
        """
        known = run_id(request)
        for run in self.live:
            if run.id == known:
                if run.request.instance_id != request.instance_id:
                    task = run.request.instance_id[:SHOWN]
                    raise SessionTakenError(f"session {known} belongs to a live trial of {task}; open another one")
                return run
        return recorded_answer(self.settings.trials_dir / trial_name(request.instance_id, known))

    def take(self, request: RunRequest) -> Run | RunResponse:
        """As `find`, and a new run where there is nothing yet; raises `LeavingError` when none is started any more."""
        found = self.find(request)
        if found is not None:
            return found
        if self.draining:
            raise LeavingError("this server is leaving and has not started the trial; ask again")
        name = request.agent_name or self.settings.agent_name
        run = Run(request, name, id=run_id(request), registered=self._clock())
        self.live.add(run)
        keep(self._life(run))
        return run

    async def answer(self, taken: Run | RunResponse, gone: asyncio.Future[None]) -> RunResponse:
        """`gone` completes when this client has left. The last one to leave frees the slot at once."""
        if isinstance(taken, RunResponse):
            return taken
        taken.clients += 1
        gone.add_done_callback(lambda left: self._client_left(taken, left))
        return await taken.answered()

    def _client_left(self, run: Run, gone: asyncio.Future[None]) -> None:
        run.clients -= 1
        if not gone.cancelled() and run.clients == 0:
            run.cancel(Cause.CLIENT_GONE)

    async def _life(self, run: Run) -> None:
        try:
            answer = await self._answer(run)
        except Exception as error:  # a bug here or in Harbor costs this run alone; it is logged and answered
            LOG.exception("run %s of %s failed inside the server", run.id, run.request.instance_id)
            answer = refusal(ExitStatus.SERVER_ERROR, f"{type(error).__name__}: {error}; look at the server's log")
        self._end(run, answer)

    def _end(self, run: Run, answer: RunResponse) -> None:
        answer.agent_metrics["total_time"] = round(self._clock() - run.registered, 6)
        run.answer = answer
        if run.phase is not Phase.LEAKED:
            self._enter(run, Phase.DONE)
        self.outcomes[answer.exit_status] += 1
        self.metrics.observe(answer)
        if run.trial is not None:
            run.trial.write_record(run.request, answer.model_dump(mode="json"))
            run.trial = None  # Harbor's trial is large
        self.live.discard(run)
        self._finished.append(run)
        run.ended.set()
        LOG.info(
            "run %s %s: %s reward %s %s",
            run.id,
            run.request.instance_id,
            answer.exit_status,
            answer.reward,
            answer.message or "",
        )

    async def _answer(self, run: Run) -> RunResponse:
        try:
            task_dir = task_directory(self.settings.tasks_dir, run.request.instance_id)
            agent = agent_config(run.request, self.settings)
        except tuple(REFUSALS) as error:
            return refusal(REFUSALS[type(error)], str(error))
        if not await self._admitted(run):
            return self._not_admitted(run)
        self._enter(run, Phase.STARTING)
        try:
            run.trial = await TrialRun.create(
                run.request,
                task_dir=task_dir,
                agent=agent,
                settings=self.settings,
                provider=self.provider,
                model_client=self.model_client,
                run_id=run.id,
                entered=partial(self._enter, run),
            )
            run.trial_name = run.trial.name
            await self._to_its_end(run, run.trial)
        except BadTaskError as error:
            return refusal(REFUSALS[BadTaskError], str(error))
        except TrialExistsError as error:
            return refusal(
                ExitStatus.SERVER_ERROR,
                f"trial {error} was begun before, by a server that runs it still or was killed; open another session",
            )
        finally:
            self.slots.give_back()
        return self._response(run, run.trial)

    async def _admitted(self, run: Run) -> bool:
        """Wait for a slot until one is ours, the run is cancelled, or the trial could no longer end in time."""
        patience = None
        if run.request.deadline_s is not None:
            patience = run.request.deadline_s - self.settings.budgets.total()
            if patience < 0:
                return False
        turn = asyncio.ensure_future(self.slots.take())
        cancelled = asyncio.ensure_future(run.cancellation())
        await asyncio.wait({turn, cancelled}, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        cancelled.cancel()
        if turn.done() and run.cause is None:
            return True
        if turn.done():
            self.slots.give_back()
        else:
            turn.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await turn
        return False

    def _not_admitted(self, run: Run) -> RunResponse:
        waited = self._clock() - run.registered
        if run.cause is not None:
            answer = refusal(ExitStatus.ABORTED, f"cancelled while queued: {run.cause}")
        else:
            need = self.settings.budgets.total()
            answer = refusal(
                ExitStatus.QUEUE_TIMEOUT,
                f"no slot in {waited:.0f} s; a trial takes up to {need:.0f} s "
                f"of the client's {run.request.deadline_s:.0f} s; "
                "raise --max-concurrent, send fewer trials at once, or wait longer",
            )
        answer.phase_seconds["queue"] = round(waited, 3)
        return answer

    async def _to_its_end(self, run: Run, trial: TrialRun) -> None:
        """Await the trial; on a cause, cancel it exactly once and see the teardown through, by force if it hangs."""
        budgets = self.settings.budgets
        task = keep(trial.run())
        cancelled = asyncio.ensure_future(run.cancellation())
        await asyncio.wait(
            {task, cancelled}, timeout=budgets.total() + budgets.cleanup_s, return_when=asyncio.FIRST_COMPLETED
        )
        cancelled.cancel()
        if task.done():
            task.result()
            return
        run.cancel(Cause.OVERRUN)
        self._enter(run, Phase.CANCELLING)
        task.cancel()
        await asyncio.wait({task}, timeout=budgets.cleanup_s)
        if not task.done():
            LOG.warning(
                "trial %s: teardown takes longer than %.0f s; removing its sandbox by force",
                trial.name,
                budgets.cleanup_s,
            )
            self._enter(run, Phase.FORCING)
            await finish(trial.destroy_sandboxes(), FORCE_SECONDS)
            await asyncio.wait({task}, timeout=1)
        if not task.done():
            self._enter(run, Phase.LEAKED)
            self.leaked += 1
            self.metrics.leaked.inc()
            LOG.error("trial %s does not end; its slot is freed, its task goes on", trial.name)

    def _response(self, run: Run, trial: TrialRun) -> RunResponse:
        evidence = trial.evidence(run.cause, agent_timeout_s=self.settings.budgets.agent_timeout_s)
        verdict = judge(evidence, reward_key=self.settings.reward_key)
        answer = response_from(verdict)
        answer.trial_name = trial.name
        answer.exception_type = evidence.exception
        answer.agent_metrics = trial.metrics()
        queue = (run.admitted or run.registered) - run.registered
        answer.phase_seconds = {"queue": round(queue, 3), **trial.phase_seconds()}
        answer.warnings = [*verdict.warnings, *trial.scope.warnings]
        return answer

    async def flush(self, ids: Iterable[str], wait_s: float = FLUSH_WAIT_SECONDS) -> FlushResponse:
        """Cancel every run of the named sessions. The names stay usable: over-sampling aborts happen every step."""
        wanted = set(ids)
        hit = [run for run in self.live if run.request.session_server_instance_id in wanted]
        for run in hit:
            run.cancel(Cause.FLUSH)
        await wait_ended(hit, wait_s)
        return FlushResponse(cancelled=len(hit), pending=sum(not run.ended.is_set() for run in hit), ids=sorted(wanted))

    async def stop(self, grace_s: float) -> None:
        """Cancel everything and wait for the answers, at most `grace_s`."""
        self.draining = True
        live = list(self.live)
        for run in live:
            run.cancel(Cause.SHUTDOWN)
        await wait_ended(live, grace_s)


async def wait_ended(runs: Iterable[Run], limit_s: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(limit_s):
            for run in runs:
                await run.ended.wait()


def response_from(verdict: Verdict) -> RunResponse:
    return RunResponse(
        reward=verdict.reward,
        exit_status=verdict.exit_status,
        eval_report=verdict.eval_report,
        infra_failure=verdict.infra_failure,
        message=verdict.message,
    )


def refusal(status: ExitStatus, message: str) -> RunResponse:
    return response_from(Verdict(status, message=message))
