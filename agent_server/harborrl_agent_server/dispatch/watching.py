"""The runs of all workers, as the dashboard sees them: one question a worker and look, however many runs there are."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from harborrl_agent_server.admission import Slots
from harborrl_agent_server.bearer import headers_with
from harborrl_agent_server.bounded import keep
from harborrl_agent_server.dashboard.state import KEPT_ENDED
from harborrl_agent_server.dispatch import merging
from harborrl_agent_server.dispatch.asking import Answer, asked
from harborrl_agent_server.dispatch.ledger import Ledger
from harborrl_agent_server.dispatch.lost import endings
from harborrl_agent_server.dispatch.telling import ROUTE, WIRE, Told
from harborrl_agent_server.dispatch.workers import Child, Workers
from harborrl_agent_server.settings import Settings
from harborrl_agent_server.snapshot import RunView, Snapshot
from harborrl_agent_server.threads import in_thread

LOG = logging.getLogger(__name__)

PATIENCE = 1.0
"""Seconds that a look waits for a worker which answered the last time. One that did not is waited for by nobody."""


@dataclass(frozen=True)
class LastWord:
    """Of one worker's process."""

    life: int
    told: Told
    at: float
    """When it came."""


class WorkersSource:
    """A `Source` of the dashboard over worker processes.

    What ended is kept here, for each worker tells it once. Of a worker that hangs the last word stands; of one that has
    gone, its runs have ended too.
    """

    def __init__(
        self, workers: Workers, slots: Slots, settings: Settings, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._workers = workers
        self._slots = slots
        self._settings = settings
        self._clock = clock
        self._words: dict[int, LastWord] = {}
        self._asking: dict[int, asyncio.Future[None]] = {}
        self._silent: set[int] = set()
        self._finished: deque[tuple[float, RunView]] = deque(maxlen=KEPT_ENDED)
        """When each ended, and what it was."""
        self._outcomes: Ledger[Mapping[str, int]] = Ledger({}, merging.outcomes)
        self._untold: Mapping[str, int] = {}
        """Outcomes of trials whose workers did not live to count them."""
        self._looking: asyncio.Future[None] | None = None

    async def look(self) -> tuple[str, Snapshot]:
        """However many ask at once, the workers are asked once."""
        if self._looking is None or self._looking.done():
            self._looking = keep(self._ask_all())
        await asyncio.shield(self._looking)
        return self._status(), self._snapshot()

    async def _ask_all(self) -> None:
        awaited = []
        for child in self._workers.children:
            index = child.worker.index
            if index in self._asking:
                continue
            self._asking[index] = keep(self._ask(child))
            if index not in self._silent:
                awaited.append(self._asking[index])
        if awaited:
            await asyncio.wait(awaited, timeout=PATIENCE)
        self._silent |= self._asking.keys()

    async def _ask(self, child: Child) -> None:
        index = child.worker.index
        try:
            word = self._words.get(index)
            if word is not None and word.life != child.life:
                self._bury(index)
                word = None
            known = word.told.ended if word is not None else 0
            self._heard(await asked(child, f"{ROUTE}?ended={known}", headers_with(self._settings.admin_secret)))
        finally:
            del self._asking[index]

    def _heard(self, answer: Answer) -> None:
        try:
            told = None if answer.text is None else WIRE.validate_json(answer.text)
        except ValidationError:
            LOG.exception("worker %d told its dispatcher what that does not understand", answer.worker)
            told = None
        if told is not None:
            self._take_in(answer, told)
        else:
            self._silent.add(answer.worker)
        if answer.is_gone:
            self._bury(answer.worker)

    def _take_in(self, answer: Answer, told: Told) -> None:
        now = self._clock()
        self._silent.discard(answer.worker)
        self._words[answer.worker] = LastWord(answer.life, told, now)
        self._outcomes.heard(answer.worker, answer.life, told.seen.outcomes)
        self._finished.extend((now - (view.ended_s_ago or 0.0), view) for view in reversed(told.seen.finished))

    def _bury(self, index: int) -> None:
        word = self._words.pop(index, None)
        if word is not None and word.told.seen.live:
            keep(self._find_out(word.told.seen.live, leaving=self._workers.leaving))

    async def _find_out(self, lost: tuple[RunView, ...], *, leaving: bool) -> None:
        """A volume that hangs is waited for by nobody else."""
        found = await in_thread(endings, lost, self._settings.trials_dir, leaving=leaving)
        now = self._clock()
        for view in found:
            self._finished.append((now, view))
            self._untold = merging.outcomes(self._untold, {str(view.outcome): 1})

    def _status(self) -> str:
        if self._workers.leaving:
            return "draining"
        return merging.status((word.told.status for word in self._words.values()), is_whole=not self._silent)

    def _snapshot(self) -> Snapshot:
        words = self._words.values()
        live = sorted(((word.at - view.age_s, view) for word in words for view in word.told.seen.live), key=began)
        finished = sorted(self._finished, key=began, reverse=True)
        return Snapshot(
            live=tuple(view for _, view in live),
            finished=tuple(view for _, view in finished),
            outcomes=merging.outcomes(self._outcomes.whole(), self._untold),
            capacity=self._slots.capacity,
            in_flight=self._slots.taken,
            queued=self._slots.queued,
            leaked=sum(word.told.seen.leaked for word in words),
            workers=len(self._workers.children),
            silent=tuple(sorted(self._silent)),
        )


def began(moment: tuple[float, RunView]) -> float:
    return moment[0]
