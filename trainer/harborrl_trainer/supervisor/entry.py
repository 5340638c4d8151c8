"""What is submitted to Ray as the driver of an incarnation: a command, and for Miles the plan that it follows."""

import asyncio
import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harborrl_trainer.job import JobDocument
from harborrl_trainer.layout import IncarnationId
from harborrl_trainer.miles_engine import plan as plans

NATIVE = "python -m harborrl_trainer run"
MILES = "python3 -m harborrl_trainer.miles_engine"
"""In Miles' own image, whose Python and packages are not ours."""
PATIENCE_SECONDS = 10.0
"""For one tick of the supervisor; planning goes on behind it."""


@dataclass(frozen=True)
class Entry:
    command: str
    env: Mapping[str, str] = field(default_factory=dict)
    """For every process of the Ray job, on every node; no secrets, since Ray keeps it in its records."""
    notices: tuple[str, ...] = ()
    """What the run lacks or does otherwise than was written, one sentence each."""


type MakeEntry = Callable[[IncarnationId], Entry]
"""Blocking. Raises OSError when a volume cannot be read or written."""


def by_command(command: str) -> MakeEntry:
    return lambda id_: Entry(f"{command} --attempt {id_.attempt} --incarnation {id_.incarnation}")


def by_plan(plan: Callable[[int, int], Path]) -> MakeEntry:
    """`plan` makes the incarnation's plan file, or finds it made."""

    def make(id_: IncarnationId) -> Entry:
        path = plan(*id_)
        made = plans.load(path)
        return Entry(f"{MILES} {shlex.quote(str(path))}", made.env, made.notices)

    return make


def entry_of(job: JobDocument) -> MakeEntry:
    if job.engine == "native":
        return by_command(NATIVE)
    from harborrl_trainer.launch import launch  # noqa: PLC0415 - the native engine's pods have no use for it
    from harborrl_trainer.miles_plan.planning import Planner  # noqa: PLC0415 - same

    return by_plan(Planner(job, launch, os.environ).plan)


class Entering:
    """One entry in the making: a data set that takes minutes to check must not keep the supervisor from its pod."""

    def __init__(self, make: MakeEntry) -> None:
        self._make = make
        self._task: asyncio.Task[Entry] | None = None

    async def entry(self, id_: IncarnationId) -> Entry:
        """Raises TimeoutError while it is not made, and what making it raised; the next call then tries again."""
        if self._task is None:
            self._task = asyncio.create_task(asyncio.to_thread(self._make, id_))
        await asyncio.wait({self._task}, timeout=PATIENCE_SECONDS)
        if not self._task.done():
            raise TimeoutError("the data set and the checkpoints are still being looked at")
        task, self._task = self._task, None
        return task.result()
