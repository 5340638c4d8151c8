"""The sidecar's life: find or submit the driver, follow it, end it when the pod is told to go."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from harborrl_trainer import files, layout
from harborrl_trainer.errors import ConfigurationError
from harborrl_trainer.job import JobDocument
from harborrl_trainer.layout import RunLayout
from harborrl_trainer.supervisor import progress, start, volumes
from harborrl_trainer.supervisor.agents import Agents
from harborrl_trainer.supervisor.cluster import Cluster, ClusterUnavailableError
from harborrl_trainer.supervisor.disk import RunReader, Seen
from harborrl_trainer.supervisor.ending import STOP_SECONDS, Marks, plan_end
from harborrl_trainer.supervisor.entry import NATIVE, Entering, MakeEntry, by_command
from harborrl_trainer.supervisor.follower import Follower
from harborrl_trainer.supervisor.publisher import Publisher
from harborrl_trainer.supervisor.ray_api import RayApi, RayUnavailableError, SubmissionRefusedError
from harborrl_trainer.supervisor.requests import StopRequests
from harborrl_trainer.supervisor.start import Follow, Lost, PodLife, Submit
from harborrl_trainer.supervisor.verdict import Driver, DriverState, lost, missed

TICK_SECONDS = 1.0
FAREWELL_SECONDS = 15.0
"""Within the 30 s that the pod's grace period has beyond the checkpoint's."""
EXISTS_TRIES = 3
"""Times that the API server is asked whether the job still exists, before it is taken to exist."""
EXISTS_SECONDS = 5.0
"""Between two such questions while the driver saves: a job may be deleted after its head was told to go."""
TICK_PATIENCE_SECONDS = 25.0
"""Of one look at everything while the pod ends, should Ray, volumes and API server all hang."""


@dataclass(frozen=True)
class World:
    """Everything outside the process."""

    ray: RayApi
    cluster: Cluster
    marks: Marks
    agents: Agents
    now: Callable[[], float]
    """Seconds since the epoch: it is compared with modification times."""
    sleep: Callable[[float], Awaitable[None]]
    say: Callable[[str], None]
    """One line of the supervisor's own log."""


class Supervisor:
    def __init__(self, job: JobDocument, attempt: int, world: World, enter: MakeEntry | None = None) -> None:
        self._job = job
        self._attempt = attempt
        self._world = world
        self._entering = Entering(enter or by_command(NATIVE))
        self._notices: tuple[str, ...] = ()
        self._run = RunLayout.of(job)
        self._told_to_leave = False
        self._last_said = ""
        self._requests: StopRequests | None = None

    def leave(self) -> None:
        """SIGTERM. Without the `terminating` mark it means this container alone, and the driver goes on without us."""
        self._told_to_leave = True

    async def live(self) -> None:
        """Until SIGTERM. Ends the driver, and releases the pod, when the pod is told to go."""
        follower = await self._find_driver()
        if follower is None:
            return
        publisher = Publisher(self._world.cluster, follower.id)
        requests = self._requests = StopRequests(
            self._world.cluster, self._run.incarnation(*follower.id), self._job.job.uid
        )
        while not self._told_to_leave:
            if self._world.marks.terminating and not self._world.marks.released:
                await self._end(follower, publisher)
            if not self._world.marks.terminating:
                await requests.step(follower.driver, self._world.now())
            await self._tick(follower, publisher)
            await self._world.sleep(TICK_SECONDS)
        await self._take_leave(follower, publisher)

    async def _take_leave(self, follower: Follower, publisher: Publisher) -> None:
        """A verdict that could not be written yet gets a few more tries: nobody else could tell it."""
        until = self._world.now() + FAREWELL_SECONDS
        while follower.driver.ended and publisher.trouble and self._world.now() < until:
            await self._world.sleep(TICK_SECONDS)
            await self._tick(follower, publisher)

    async def _tick(self, follower: Follower, publisher: Publisher) -> None:
        if not follower.driver.submitted:
            await self._submit(follower)
        await follower.step(self._world.now())
        if follower.seen is not None or follower.driver.ended:
            # Before the first look at the volumes a document would take back what an earlier supervisor reported.
            document = progress.document(self._job, follower.id, self._report(follower))
            await publisher.offer(document, self._world.now(), final=follower.driver.ended)
        self._say(follower, publisher)

    def _report(self, follower: Follower) -> progress.Report:
        return progress.Report(
            driver=follower.driver,
            seen=follower.seen or Seen(),
            load=follower.load,
            oldest_trial_since=follower.oldest_trial_since,
            request=self._requests.given if self._requests else None,
            flushed=follower.flushed,
            notices=self._notices,
        )

    async def _find_driver(self) -> Follower | None:
        """Wait for Ray, then find this pod's driver. None when told to go before there is one; then the pod is free."""
        while not self._told_to_leave:
            if self._world.marks.terminating:
                return self._resume_ending()
            try:
                return await self._begin(await self._world.ray.submissions())
            except (RayUnavailableError, OSError) as error:
                self._note(f"waiting for Ray and the volumes: {error}")
                await self._world.sleep(TICK_SECONDS)
        return None

    def _resume_ending(self) -> Follower | None:
        """Ray may be silent by now, and need not be asked which driver is this pod's."""
        life = start.read_life(self._world.marks.folder)
        if life is not None:
            return self._follower(life.incarnation, "PENDING" if life.submitted else "STARTING")
        self._world.marks.release()
        return None

    async def _begin(self, known: list[str]) -> Follower:
        marks = self._world.marks.folder
        match start.decide_start(start.read_life(marks), known, self._job.job.name, self._attempt):
            case Follow(incarnation):
                start.write_life(marks, PodLife(incarnation, submitted=True))
                follower = self._follower(incarnation, "PENDING")
                with contextlib.suppress(ConfigurationError, OSError):  # told again only for what it notes
                    self._notices = (await self._entering.entry(follower.id)).notices
                return follower
            case Lost(incarnation):
                follower = self._follower(incarnation, "FAILED")
                follower.driver = lost(follower.driver.submission_id)
                return follower
            case Submit(incarnation):
                if incarnation is None:
                    incarnation = (await volumes.call(start.claim_next, self._run, self._attempt)).incarnation
                    start.write_life(marks, PodLife(incarnation, submitted=False))
                return self._follower(incarnation, "STARTING")

    async def _submit(self, follower: Follower) -> None:
        submission, incarnation = follower.driver.submission_id, follower.id.incarnation
        try:
            entry = await self._entering.entry(follower.id)
            self._notices = entry.notices
            await self._world.ray.submit(submission, entry.command, entry.env)
        except RayUnavailableError as error:
            follower.driver = Driver(submission, "STARTING", f"Ray does not take the driver yet: {error}")
        except OSError as error:
            follower.driver = Driver(submission, "STARTING", f"The driver's plan is not made yet: {error}")
        except ConfigurationError as error:
            follower.driver = Driver(submission, "FAILED", str(error), "configuration")
        except SubmissionRefusedError as error:
            follower.driver = Driver(submission, "FAILED", f"Ray refused the driver: {error}", "application")
        else:
            start.write_life(self._world.marks.folder, PodLife(incarnation, submitted=True))
            follower.driver = Driver(submission, "PENDING")

    async def _end(self, follower: Follower, publisher: Publisher) -> None:
        """Save or cancel, stop, release. Each wait is bounded, so that the whole fits into the grace period."""
        idle = follower.driver.ended or not follower.driver.submitted
        exists = await self._job_exists()
        plan = plan_end(job_exists=exists, driver_idle=idle, grace_seconds=self._job.checkpoint.grace_seconds)
        self._note(f"told to go; the job {'still exists' if exists else 'is gone'}; plan: {plan}")
        if plan.save:
            await self._ask_to_save(follower)
            exists = await self._wait_for_save(follower, publisher, plan.wait_seconds)
        if not follower.driver.ended:
            await self._stop(follower)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STOP_SECONDS):
                    await self._wait_for_end(follower, publisher, STOP_SECONDS)
            if plan.save and exists and follower.driver.ended:
                follower.driver = missed(follower.driver, plan.wait_seconds)
        self._world.marks.release()

    async def _ask_to_save(self, follower: Follower) -> None:
        """A volume that takes no request would take no checkpoint either; the driver is still given its time."""
        request = self._run.incarnation(*follower.id).stop_request
        try:
            await volumes.call(files.replace, request, "the pod is told to go\n")
        except OSError as error:
            self._note(f"{request}: cannot ask the driver to save ({error.strerror or 'the volume does not answer'})")

    async def _stop(self, follower: Follower) -> None:
        """Also when no submission was confirmed: an answer may have been lost on its way."""
        try:
            await self._world.ray.stop(follower.driver.submission_id)
        except RayUnavailableError as error:
            self._note(f"cannot stop the driver: {error}")
        if not follower.driver.submitted:
            follower.driver = Driver(follower.driver.submission_id, "STOPPED", "The pod ended before the driver began.")

    async def _wait_for_save(self, follower: Follower, publisher: Publisher, seconds: float) -> bool:
        """False as soon as the job is gone, for which nothing needs to be saved."""
        until = self._world.now() + seconds
        while self._world.now() < until:
            await self._wait_for_end(follower, publisher, min(EXISTS_SECONDS, until - self._world.now()))
            if follower.driver.ended:
                return True
            if not await self._may_exist():
                self._note("the job was deleted while the driver saved; it is stopped")
                return False
        return True

    async def _may_exist(self) -> bool:
        """Asked once: the next question follows soon."""
        try:
            return await self._world.cluster.job_exists()
        except ClusterUnavailableError as error:
            self._note(f"cannot ask whether the job still exists: {error}")
            return True

    async def _wait_for_end(self, follower: Follower, publisher: Publisher, seconds: float) -> None:
        until = self._world.now() + seconds
        while not follower.driver.ended and self._world.now() < until:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK_PATIENCE_SECONDS):
                    await self._tick(follower, publisher)
            await self._world.sleep(TICK_SECONDS)

    async def _job_exists(self) -> bool:
        for attempt in range(EXISTS_TRIES):
            try:
                return await self._world.cluster.job_exists()
            except ClusterUnavailableError as error:
                self._note(f"cannot ask whether the job still exists (try {attempt + 1}): {error}")
                await self._world.sleep(TICK_SECONDS)
        return True

    def _follower(self, incarnation: int, state: DriverState) -> Follower:
        mine = self._run.incarnation(self._attempt, incarnation)
        driver = Driver(layout.submission_id(self._job.job.name, self._attempt, incarnation), state)
        return Follower(self._world.ray, mine, RunReader(self._run, mine.id), driver, self._world.agents)

    def _say(self, follower: Follower, publisher: Publisher) -> None:
        driver = follower.driver
        parts = [f"{driver.submission_id} {driver.state}", driver.message, follower.trouble]
        parts.append(self._requests.trouble if self._requests else "")
        parts.append(f"progress not written: {publisher.trouble}" if publisher.trouble else "")
        self._note("; ".join(part for part in parts if part))

    def _note(self, line: str) -> None:
        """Log state changes only: a line that repeats the last one says nothing."""
        if line != self._last_said:
            self._last_said = line
            self._world.say(line)
