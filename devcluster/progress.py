"""How long work is shown: bars on a terminal, plain lines elsewhere, and the time that each stage took."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

Advance = Callable[[float], None]
"""Told the fraction done so far, 0 to 1."""


class Reporter:
    """Prints stages as they run. `timings` holds (stage, seconds) in order."""

    def __init__(self, console: Console | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.console = console or Console(stderr=True, highlight=False)
        self.timings: list[tuple[str, float]] = []
        self._clock = clock

    def say(self, line: str) -> None:
        self.console.print(line, markup=False)

    @contextmanager
    def stage(self, title: str) -> Iterator[Advance]:
        """One stage of work. The value is called with the fraction done, where that is known."""
        begun = self._clock()
        if self.console.is_terminal:
            with self._bar(title) as advance:
                yield advance
        else:
            self.say(f"{title} …")
            yield self._milestones(title)
        seconds = self._clock() - begun
        self.timings.append((title, seconds))
        self.say(f"{title}: {seconds:.1f} s")

    @contextmanager
    def _bar(self, title: str) -> Iterator[Advance]:
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        with Progress(*columns, console=self.console, transient=True) as progress:
            task: TaskID = progress.add_task(title, total=None)
            yield lambda fraction: progress.update(task, total=1.0, completed=fraction)

    def _milestones(self, title: str) -> Advance:
        shown = 0

        def advance(fraction: float) -> None:
            nonlocal shown
            quarter = int(fraction * 4)
            if shown < quarter < 4:
                shown = quarter
                self.say(f"{title}: {quarter * 25} %")

        return advance

    def summary(self) -> None:
        total = sum(seconds for _, seconds in self.timings)
        self.say(f"Total {total:.1f} s")
