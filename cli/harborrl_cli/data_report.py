"""What `harborrl data prepare` says of a data set, for people and for programs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harborrl_cli.printing import clean
from harborrl_trainer.data.causes import Cause
from harborrl_trainer.data.prepare import Report


@dataclass(frozen=True)
class Outcome:
    described: str
    """What was read."""
    output: Path
    report: Report
    error: str | None
    """Why nothing was written."""
    dry_run: bool

    @property
    def changed(self) -> bool:
        return self.error is None and not self.dry_run and self.report.written > 0

    def document(self) -> dict[str, Any]:
        report = self.report
        return {
            "input": self.described,
            "output": str(self.output),
            "changed": self.changed,
            "error": self.error,
            "read": report.read,
            "written": 0 if self.error else report.written,
            "kept": report.kept,
            "stoppedAtLimit": report.stopped_at_limit,
            "dropped": [
                {"cause": cause, "rows": rows, "first": report.where[cause]}
                for cause, rows in report.dropped.most_common()
            ],
            "stripped": dict(_ordered(report.stripped)),
            "binary": dict(_ordered(report.binary)),
            "shapes": dict(report.shapes.most_common()),
        }

    def text(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        report = self.report
        stopped = ", stopped at the limit" if report.stopped_at_limit else ""
        yield f"{clean(self.described)}: {report.read} rows read{stopped}"
        yield from (self._dropped(cause, rows) for cause, rows in report.dropped.most_common())
        for key, rows in _ordered(report.stripped):
            yield f"  metadata.{clean(key)} stripped from {rows} rows: it would be taken for a trial's own value"
        for key, rows in _ordered(report.binary):
            yield f"  column {clean(key)} left out of {rows} rows: bytes that are no text"
        if self.error is None or report.written:
            yield self._written()

    def _dropped(self, cause: Cause, rows: int) -> str:
        if cause is Cause.IN_OUTPUT:
            return f"  {rows} {cause}"
        first = self.report.where[cause]
        more = f" and {rows - len(first)} more" if rows > len(first) else ""
        return f"  {rows} dropped, {cause}: {clean(', '.join(first))}{more}"

    def _written(self) -> str:
        report = self.report
        kept = f", {report.kept} kept" if report.kept else ""
        if not report.written:
            return f"{self.output}: is as it was{kept}"
        shapes = ", ".join(f"{count} {name}" for name, count in report.shapes.most_common())
        verb = "written" if self.changed else "would be written"
        return f"{self.output}: {report.written} rows {verb}{kept} ({shapes})"


def _ordered(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """The most first, then by name: the same in each run."""
    return sorted(counts.items(), key=lambda one: (-one[1], one[0]))
