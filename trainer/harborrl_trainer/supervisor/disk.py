"""One look at a run's volumes: how far it has come. Only names, times and our own JSON are read, never a pickle."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harborrl_trainer import checkpoints, dumps, index
from harborrl_trainer.checkpoints import Checkpoint
from harborrl_trainer.dumps import DumpSummary
from harborrl_trainer.errors import StorageError
from harborrl_trainer.index import Claim
from harborrl_trainer.layout import COMPLETE_MARK, IncarnationId, RunLayout
from harborrl_trainer.space import TIGHT_BYTES, FreeBytes, Space, free_bytes
from harborrl_trainer.supervisor.trials import TrialLog, TrialSummary, TrialTally


@dataclass(frozen=True)
class Seen:
    dumps: DumpSummary = field(default_factory=DumpSummary)
    trials: TrialSummary = field(default_factory=TrialSummary)
    reward_mean: float | None = None
    evaluations: Mapping[int, float] = field(default_factory=dict)
    checkpoint: Checkpoint | None = None
    claims: Sequence[Claim] = ()
    space: Mapping[str, Space] = field(default_factory=dict)
    """By role of the volume."""


class RunReader:
    """Looks at all incarnations the first time, and afterwards only at its own: nobody may write to the others."""

    def __init__(self, run: RunLayout, mine: IncarnationId, free: FreeBytes = free_bytes) -> None:
        self._run = run
        self._free = free
        self._mine = mine
        self._tally = TrialTally()
        self._logs: dict[IncarnationId, TrialLog] = {}
        self._dumps: dict[IncarnationId, dumps.Dumps] = {}

    def look(self, now: float, settle_seconds: float) -> Seen:
        """Blocking. Raises OSError when a volume cannot be read. Logs are read to their end when nothing settles."""
        self._read_dumps()
        self._read_trials(to_the_end=settle_seconds == 0)
        claims = self._claims()
        summary = dumps.summarise(self._dumps, claims, now, settle_seconds)
        newest = summary.collected - 1
        checkpoint = checkpoints.newest_complete(checkpoints.list_checkpoints(self._run.checkpoints), claims)
        return Seen(
            dumps=summary,
            trials=self._tally.summary,
            reward_mean=self._tally.reward_mean(index.owner(claims, newest), newest),
            evaluations=self._tally.evaluations(),
            checkpoint=checkpoint,
            claims=claims,
            space=self._space(checkpoint),
        )

    def _space(self, newest: Checkpoint | None) -> dict[str, Space]:
        run, checkpoint = self._run, 2 * _size(newest.path) if newest else 0
        wanted = (("checkpoints", run.checkpoints, checkpoint), ("traces", run.traces, 0), ("trials", run.trials, 0))
        return {
            role: Space(self._free(folder), max(needed, TIGHT_BYTES))
            for role, folder, needed in wanted
            if folder.is_dir()
        }

    def _read_dumps(self) -> None:
        if not self._dumps:
            self._dumps = dumps.scan_run(self._run.traces)
        self._dumps[self._mine] = dumps.scan_incarnation(self._run.incarnation(*self._mine))

    def _read_trials(self, *, to_the_end: bool) -> None:
        for id_ in self._dumps:
            if id_ not in self._logs:
                self._logs[id_] = TrialLog(self._run.incarnation(*id_).trials)
            while records := list(self._logs[id_].read()):
                for record in records:
                    self._tally.add(id_, record)
                if not to_the_end:
                    break

    def _claims(self) -> Sequence[Claim]:
        try:
            return index.read_claims(self._run.index)
        except StorageError:
            return ()


def _size(checkpoint: Path) -> int:
    """Bytes of a checkpoint as it was sealed; 0 when the seal does not say."""
    try:
        return sum(int(size) for size in json.loads((checkpoint / COMPLETE_MARK).read_bytes())["files"].values())
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return 0
