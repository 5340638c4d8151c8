"""The end of trials that do not end: by force, and what force leaves is tried again until nothing is left."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from harborrl_agent_server.bounded import finish, keep
from harborrl_agent_server.outcomes import Cause
from harborrl_agent_server.phases import Phase
from harborrl_agent_server.run import Run
from harborrl_agent_server.settings import Budgets
from harborrl_agent_server.trial import TrialRun

LOG = logging.getLogger(__name__)

FORCE_SECONDS = 30.0
"""For one removal of a sandbox behind Harbor's back; while a trial's answer waits for it, it holds its slot."""

HEED_SECONDS = 1.0
"""For Harbor to see that its sandbox is gone."""

Enter = Callable[[Run, Phase], None]


@dataclass(frozen=True, eq=False)
class Leftover:
    """A trial that was answered although something of it is left: its sandbox, or Harbor's task."""

    run: Run
    trial: TrialRun
    task: asyncio.Task[Any]


class Reaper:
    """`degraded` as long as `left` is not empty."""

    def __init__(self, enter: Enter, budgets: Budgets) -> None:
        self._enter = enter
        self._budgets = budgets
        self._work = asyncio.Event()
        self.left: set[Leftover] = set()

    async def see_through(self, run: Run, trial: TrialRun) -> None:
        """Run the trial; on a cause, cancel it exactly once. Raises what the trial raised."""
        budgets = self._budgets
        task = keep(trial.run())
        cancelled = asyncio.ensure_future(run.cancellation())
        await asyncio.wait(
            {task, cancelled}, timeout=budgets.total() + budgets.cleanup_s, return_when=asyncio.FIRST_COMPLETED
        )
        cancelled.cancel()
        if not task.done():
            run.cancel(Cause.OVERRUN)
            self._enter(run, Phase.CANCELLING)
            trial.give_up(task)
            await asyncio.wait({task}, timeout=budgets.cleanup_s)
        await self._clear_away(run, trial, task)
        if task.done() and run.cause is None:
            if task.cancelled():  # not by us: an agent's library did it to the task in which it ran
                raise RuntimeError("something in the trial cancelled it")
            task.result()

    async def _clear_away(self, run: Run, trial: TrialRun, task: asyncio.Task[Any]) -> None:
        if not task.done():
            LOG.warning("trial %s does not end; removing its sandbox by force", trial.name)
            self._enter(run, Phase.FORCING)
        await finish(trial.destroy_sandboxes(), FORCE_SECONDS)
        await asyncio.wait({task}, timeout=HEED_SECONDS)
        if not task.done() or trial.sandbox_left:
            LOG.error("trial %s: its sandbox or its task is left; its slot is freed, the reaper goes on", trial.name)
            self._enter(run, Phase.LEAKED)
            self.left.add(Leftover(run, trial, task))
            self._work.set()

    async def reap(self) -> None:
        """One more try for each."""
        await asyncio.gather(*(self._reap(leftover) for leftover in tuple(self.left)))

    async def _reap(self, leftover: Leftover) -> None:
        run, trial, task = leftover.run, leftover.trial, leftover.task
        if not await finish(trial.destroy_sandboxes(), FORCE_SECONDS) or trial.sandbox_left:
            return
        task.cancel()  # a second time: what it has been waiting for is gone
        await asyncio.wait({task}, timeout=HEED_SECONDS)
        if task.done():
            LOG.info("trial %s: nothing is left of it any more", trial.name)
            self._enter(run, Phase.DONE)
            self.left.discard(leftover)

    async def keep_reaping(self, interval_s: float) -> None:
        while True:
            await self._work.wait()
            await asyncio.sleep(interval_s)
            await self.reap()
            if not self.left:
                self._work.clear()
