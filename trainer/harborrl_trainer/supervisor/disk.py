"""One look at a run's volumes: how far it has come. Only names, times and our own JSON are read, never a pickle."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from harborrl_trainer import checkpoints, dumps, index
from harborrl_trainer.checkpoints import Checkpoint
from harborrl_trainer.dumps import DumpSummary
from harborrl_trainer.errors import StorageError
from harborrl_trainer.index import Claim
from harborrl_trainer.layout import IncarnationId, RunLayout
from harborrl_trainer.supervisor.trials import TrialLog, TrialSummary, TrialTally


@dataclass(frozen=True)
class Seen:
    dumps: DumpSummary = field(default_factory=DumpSummary)
    trials: TrialSummary = field(default_factory=TrialSummary)
    reward_mean: float | None = None
    evaluations: Mapping[int, float] = field(default_factory=dict)
    checkpoint: Checkpoint | None = None
    claims: Sequence[Claim] = ()


class RunReader:
    """Looks at all incarnations the first time, and afterwards only at its own: nobody may write to the others."""

    def __init__(self, run: RunLayout, mine: IncarnationId) -> None:
        self._run = run
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
        return Seen(
            dumps=summary,
            trials=self._tally.summary,
            reward_mean=self._tally.reward_mean(index.owner(claims, newest), newest),
            evaluations=self._tally.evaluations(),
            checkpoint=checkpoints.newest_complete(checkpoints.list_checkpoints(self._run.checkpoints), claims),
            claims=claims,
        )

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
