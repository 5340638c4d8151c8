"""Follows one driver: Ray's word on it, the run's files, the agent server's load. What fails is tried again."""

import asyncio

from harborrl_trainer import files
from harborrl_trainer.dumps import SETTLE_SECONDS
from harborrl_trainer.layout import IncarnationId, IncarnationLayout
from harborrl_trainer.supervisor import verdict, volumes
from harborrl_trainer.supervisor.agents import Agents, FlushFailedError, ServerLoad
from harborrl_trainer.supervisor.disk import RunReader, Seen
from harborrl_trainer.supervisor.ray_api import RayApi, RayUnavailableError
from harborrl_trainer.supervisor.verdict import Driver

RAY_SECONDS = 2.0
DISK_SECONDS = 10.0
LOG_SECONDS = 60.0
LOAD_SECONDS = 30.0
SAME_TRIAL_SECONDS = 15.0
SESSIONS_SECONDS = 5.0
"""Until a session server has told its name, without which nothing can be flushed."""
LOST_AFTER = 3
"""Answers in a row that Ray does not know the driver, before it is believed."""


class Follower:
    def __init__(self, ray: RayApi, mine: IncarnationLayout, reader: RunReader, driver: Driver, agents: Agents) -> None:
        self._ray = ray
        self._mine = mine
        self._reader = reader
        self._agents = agents
        self._look: asyncio.Task[Seen] | None = None
        self._due = dict.fromkeys(("ray", "disk", "log", "load", "sessions"), 0.0)
        self._unknown = 0
        self._look_is_final = False
        self._final_look = False
        self.driver = driver
        self.seen: Seen | None = None
        """The run's files as last seen; None before the first look that succeeded."""
        self.load: ServerLoad | None = None
        self.oldest_trial_since: float | None = None
        self.sessions: frozenset[str] = frozenset()
        """Names of the driver's session servers, which its trials bear in the agent server."""
        self.flushed: int | None = None
        """Trials that were cancelled after the driver's end; None before, and when no server took the flush."""
        self.trouble = ""
        """What cannot be seen at the moment, for the supervisor's own log; empty when all can."""

    @property
    def id(self) -> IncarnationId:
        return self._mine.id

    async def step(self, now: float) -> None:
        self.trouble = ""
        if self.driver.submitted and not self.driver.ended:
            await self._follow(now)
        if not self._final_look and self._is_due("disk", now, DISK_SECONDS):
            await self._look_at_disk(now)

    async def _follow(self, now: float) -> None:
        if self._is_due("load", now, LOAD_SECONDS):
            await self._ask_load(now)
        if not self.sessions and self._is_due("sessions", now, SESSIONS_SECONDS):
            self.sessions = await self._agents.sessions()
        if self._is_due("log", now, LOG_SECONDS):
            await self._save_log()
        if self._is_due("ray", now, RAY_SECONDS):
            await self._ask_ray(now)

    def _is_due(self, what: str, now: float, period: float) -> bool:
        if now < self._due[what]:
            return False
        self._due[what] = now + period
        return True

    async def _ask_load(self, now: float) -> None:
        self.load = await self._agents.load()
        age = self.load.oldest_trial_s if self.load else None
        since = None if age is None else now - age
        same = since is not None and self.oldest_trial_since is not None
        # The same trial seen again must not look new by a second of delay: each change is a write.
        if not (same and abs(since - self.oldest_trial_since) < SAME_TRIAL_SECONDS):  # type: ignore[operator]  # `same`
            self.oldest_trial_since = since

    async def _ask_ray(self, now: float) -> None:
        try:
            job = await self._ray.job(self.driver.submission_id)
        except RayUnavailableError as error:
            # The dashboard is one process of many: its silence says nothing about the driver.
            self.trouble = f"Ray: {error}"
            return
        self._unknown = 0 if job else self._unknown + 1
        if job is not None:
            log = await self._save_log() if job.ended else ""
            self.driver = verdict.driver_of(job, log)
        elif self._unknown >= LOST_AFTER:
            self.driver = verdict.lost(self.driver.submission_id)
        if self.driver.ended:
            self.load = None
            self._due["disk"] = now
            await self._flush()

    async def _flush(self) -> None:
        """A driver that was killed has not said farewell: its trials would hold slots until their server notices."""
        if self.driver.state == "SUCCEEDED" or not self.sessions:
            return
        try:
            self.flushed = await self._agents.flush(self.sessions)
        except FlushFailedError as error:
            self.trouble = f"flush: {error}"

    async def _save_log(self) -> str:
        """The log's tail, also kept as traces/driver.log: the head pod takes Ray's own copy with it."""
        try:
            text = await self._ray.log_tail(self.driver.submission_id)
            # Replaced whole: a full volume, where the log matters most, must not cut the last one to nothing.
            await volumes.call(files.replace, self._mine.driver_log, text)
        except RayUnavailableError as error:
            self.trouble = f"driver's log: {error}"
            return ""
        except OSError as error:
            self.trouble = f"{self._mine.driver_log}: {error.strerror or 'the volume does not answer'}"
        return text

    async def _look_at_disk(self, now: float) -> None:
        """Look in a thread, and keep waiting for the same look while a volume hangs: never two at once."""
        if self._look is None:
            self._look_is_final = self.driver.ended
            settle = 0.0 if self._look_is_final else SETTLE_SECONDS
            self._look = asyncio.create_task(asyncio.to_thread(self._reader.look, now, settle))
        await asyncio.wait({self._look}, timeout=volumes.TIMEOUT_SECONDS)
        if not self._look.done():
            self.trouble = "a volume does not answer"
            return
        try:
            self.seen = self._look.result()
            self._final_look = self._look_is_final
        except OSError as error:
            self.trouble = f"{error.filename}: {error.strerror}"
        self._look = None
