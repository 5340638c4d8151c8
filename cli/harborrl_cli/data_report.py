"""What `harborrl data prepare` says of a data set, for people and for programs."""

from collections.abc import Iterator
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
        return self.error is None and not self.dry_run

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
            "stripped": dict(report.stripped.most_common()),
            "binary": dict(report.binary.most_common()),
            "shapes": dict(report.shapes.most_common()),
        }

    def text(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        report = self.report
        stopped = ", stopped at the limit" if report.stopped_at_limit else ""
        yield f"{clean(self.described)}: {report.read} rows read{stopped}"
        yield from (self._dropped(cause, rows) for cause, rows in report.dropped.most_common())
        for key, rows in report.stripped.most_common():
            yield f"  metadata.{clean(key)} stripped from {rows} rows: it would be taken for a trial's own value"
        for key, rows in report.binary.most_common():
            yield f"  column {clean(key)} left out of {rows} rows: bytes that are no text"
        if self.changed or not report.dropped or report.written:
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
        shapes = ", ".join(f"{count} {name}" for name, count in report.shapes.most_common())
        verb = "written" if self.changed else "would be written"
        return f"{self.output}: {report.written} rows {verb}{kept}{f' ({shapes})' if shapes else ''}"
