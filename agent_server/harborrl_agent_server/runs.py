"""The life of a run: registered, queued, running, over. The first cause to end it wins; no caller owns the teardown."""

import asyncio
import contextlib
import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from harbor.models.trial.config import AgentConfig

from harborrl_agent_server.admission import Admission, Taken, taken
from harborrl_agent_server.agents.registry import agent_config
from harborrl_agent_server.answers import REFUSALS, not_admitted, of_trial, refusal, refused
from harborrl_agent_server.bounded import alone
from harborrl_agent_server.contract import ExitStatus, FlushResponse, RunRequest, RunResponse
from harborrl_agent_server.gateway import Gateway
from harborrl_agent_server.metrics import Metrics
from harborrl_agent_server.outcomes import Cause
from harborrl_agent_server.phases import Phase
from harborrl_agent_server.reaper import Reaper
from harborrl_agent_server.run import Run
from harborrl_agent_server.scope import SandboxProvider
from harborrl_agent_server.session_watch import SessionWatch
from harborrl_agent_server.sessions import SessionTakenError, recorded_answer, run_id, trial_name
from harborrl_agent_server.settings import Settings
from harborrl_agent_server.snapshot import SHOWN, Snapshot, view
from harborrl_agent_server.tasks import task_directory
from harborrl_agent_server.trial import TrialRun
from harborrl_agent_server.volumes import EndedMeanwhileError, read

LOG = logging.getLogger(__name__)

FLUSH_WAIT_SECONDS = 8.0
"""How long `/flush` waits for cancelled trials before it counts them as pending: our clients wait 10 s."""

REMEMBERED = 200
"""Finished runs that can still be seen, some hundred bytes each."""


class LeavingError(Exception):
    """No new run is started here."""


class Runs:
    """All runs of this server."""

    def __init__(
        self,
        settings: Settings,
        provider: SandboxProvider,
        gateway: Gateway,
        metrics: Metrics,
        *,
        admission: Admission | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self.provider = provider
        self.gateway = gateway
        self.metrics = metrics
        admission = admission or Admission.of(settings.max_concurrent, settings.start_concurrency)
        self.slots, self.starts = admission.slots, admission.starts
        self.live: set[Run] = set()
        self.outcomes: Counter[str] = Counter()
        self.draining = False
        """No new runs: those that are live are about to be cancelled, or the last that this server will see."""
        self.sessions = SessionWatch(gateway.new_client(), settings.session_look_s)
        self.reaper = Reaper(self._enter, settings.budgets)
        self.learn: Callable[[str], object] = lambda _: None
        """Told the API key of each new run: whoever shows what trials leave must know what to hide."""
        self._clock = clock
        self._finished: deque[Run] = deque(maxlen=REMEMBERED)

    def oldest_s(self) -> float | None:
        started = [run.admitted for run in self.live if run.admitted is not None]
        return self._clock() - min(started) if started else None

    def trial_names(self) -> set[str]:
        """Of trials whose directories are in use."""
        in_use = [*self.live, *(leftover.run for leftover in self.reaper.left)]
        return {run.trial_name for run in in_use if run.trial_name is not None}

    def status(self) -> str:
        return "draining" if self.draining else "degraded" if self.reaper.left else "ok"

    def snapshot(self) -> Snapshot:
        """All live runs and the last finished ones, as values."""
        now, place = self._clock(), self.settings.worker
        worker = None if place is None else place.index
        return Snapshot(
            live=tuple(view(run, now, worker) for run in sorted(self.live, key=lambda run: run.registered)),
            finished=tuple(view(run, now, worker) for run in reversed(self._finished)),
            outcomes=dict(self.outcomes),
            capacity=self.slots.capacity,
            in_flight=self.slots.taken,
            queued=self.slots.queued,
            leaked=len(self.reaper.left),
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
        self.learn(request.api_key)
        self.sessions.follow(run)
        alone(self._life(run))
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
            LOG.exception("run %s of %.130r failed inside the server", run.id, run.request.instance_id)
            answer = refusal(ExitStatus.SERVER_ERROR, f"{type(error).__name__}: {error}; look at the server's log")
        self._end(run, answer)

    def _end(self, run: Run, answer: RunResponse) -> None:
        answer.agent_metrics["total_time"] = round(self._clock() - run.registered, 6)
        run.answer = answer
        try:
            self._account_for(run, answer)
        finally:
            self.sessions.forget(run)
            run.forget_the_work()
            self.live.discard(run)
            self._finished.append(run)
            run.ended.set()

    def _account_for(self, run: Run, answer: RunResponse) -> None:
        if run.phase is Phase.LEAKED:
            self.metrics.leaked.inc()
        else:
            self._enter(run, Phase.DONE)
        self.outcomes[answer.exit_status] += 1
        self.metrics.observe(answer)
        LOG.info(
            "run %s %.130r: %s, %s %s",
            run.id,
            run.request.instance_id,
            answer.exit_status,
            "no reward" if answer.infra_failure else f"reward {answer.reward:g}",
            answer.message or "",
        )
        if run.trial is not None:
            run.trial.write_record(
                run.request, answer.model_dump(mode="json"), cause=run.cause, phase_starts=run.phase_starts()
            )

    async def _answer(self, run: Run) -> RunResponse:
        try:
            place = asyncio.ensure_future(self._slot(run))  # before the task is read: that ends in any order
            try:
                task_dir = await self._task_directory(run)
                agent = agent_config(run.request, self.settings)
            except BaseException:
                await leave(place)
                raise
            slot = await place
            if slot is None:
                return not_admitted(run, self._clock(), self.settings)
            try:
                return await self._in_slot(run, task_dir, agent)
            finally:
                slot.give_back()
        except EndedMeanwhileError:
            return not_admitted(run, self._clock(), self.settings)
        except tuple(REFUSALS) as error:
            return refused(error)

    async def _task_directory(self, run: Run) -> Path:
        root, name = self.settings.tasks_dir, run.request.instance_id
        work = partial(task_directory, root, name)
        return await read(work, f"{root}", limit_s=self.settings.read_s, ended=run.cancellation())

    async def _in_slot(self, run: Run, task_dir: Path, agent: AgentConfig) -> RunResponse:
        """Still queued until its sandbox may be made (decision 0167)."""
        start = await taken(self.starts, run.cancellation(), self._patience(run))
        if start is None:
            return not_admitted(run, self._clock(), self.settings)
        try:
            self._enter(run, Phase.STARTING)
            run.trial = await TrialRun.create(
                run.request,
                task_dir=task_dir,
                agent=agent,
                settings=self.settings,
                provider=self.provider,
                gateway=self.gateway,
                run_id=run.id,
                entered=partial(self._started, run, start),
                ended=run.cancellation(),
            )
            run.trial_name = run.trial.name
            await self.reaper.see_through(run, run.trial)
        finally:
            start.give_back()
        return of_trial(run, run.trial, self.settings)

    def _started(self, run: Run, start: Taken, phase: Phase) -> None:
        """The first phase that a trial enters by itself begins when its sandbox is there."""
        start.give_back()
        self._enter(run, phase)

    async def _slot(self, run: Run) -> Taken | None:
        """Wait for a slot until one is ours, the run is cancelled, or the trial could no longer end in time."""
        patience = self._patience(run)
        if patience is not None and patience < 0:
            return None
        return await taken(self.slots, run.cancellation(), patience)

    def _patience(self, run: Run) -> float | None:
        """Seconds from now in which the trial must begin, to end while its client waits."""
        if run.request.deadline_s is None:
            return None
        return run.registered + run.request.deadline_s - self.settings.budgets.total() - self._clock()

    async def flush(self, ids: Iterable[str], wait_s: float = FLUSH_WAIT_SECONDS) -> FlushResponse:
        """Cancel every run of the named sessions. The names stay usable: over-sampling aborts happen every step."""
        wanted = set(ids)
        hit = [run for run in self.live if run.request.session_server_instance_id in wanted]
        cancelled = sum(run.cancel(Cause.FLUSH) for run in hit)
        await wait_ended(hit, wait_s)
        return FlushResponse(
            cancelled=cancelled, pending=sum(not run.ended.is_set() for run in hit), ids=sorted(wanted)
        )

    async def stop(self, grace_s: float) -> None:
        """Cancel everything and wait for the answers, at most `grace_s`."""
        self.draining = True
        live = list(self.live)
        for run in live:
            run.cancel(Cause.SHUTDOWN)
        await wait_ended(live, grace_s)


async def leave(place: "asyncio.Future[Taken | None]") -> None:
    """Give up a place among those who wait for a slot, or the slot."""
    place.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        if (slot := await place) is not None:
            slot.give_back()


async def wait_ended(runs: Iterable[Run], limit_s: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(limit_s):
            for run in runs:
                await run.ended.wait()
