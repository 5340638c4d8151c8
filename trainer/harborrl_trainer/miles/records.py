"""The trial log of Miles' rollout process: each trial's line is written when it is known whether its group is used."""

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from harborrl_trainer.miles.call import NotWanted
from harborrl_trainer.miles.settings import Settings
from harborrl_trainer.rollout.groups import EveryGroupAborted, Group, OpenGroups, Patience, drop_cause, drop_reason
from harborrl_trainer.rollout.ledger import Ledger
from harborrl_trainer.rollout.trial_log import TrialLog, trial_record
from harborrl_trainer.rollout.trials import TrialHistory

logger = logging.getLogger(__name__)

NOT_WANTED = NotWanted.__name__
UNUSED = "Unused"
"""Group whole, but the trainer took others or filtered it."""


def log_file(folder: Path) -> Path:
    return folder / f"miles-{os.getpid()}.jsonl"


def check_log(settings: Settings) -> None:
    """Raises OSError when the trial log cannot be written."""
    if settings.trials_dir is not None:
        TrialLog(log_file(settings.trials_dir)).close()


@dataclass(frozen=True)
class Entry:
    """A trial that has ended, with Miles' names for it."""

    group_id: int
    sample_id: int
    instance_id: str
    history: TrialHistory[Any]


class Records:
    """The rollout of a trial is known from `begin` where Miles says it; else it follows from the groups kept."""

    def __init__(self, settings: Settings, ledger: Ledger) -> None:
        self._ledger = ledger
        self._start = settings.start_rollout
        self._give_up_groups = settings.give_up_groups
        self._log = TrialLog(log_file(settings.trials_dir)) if settings.trials_dir else None
        self._training: int | None = None
        self._evaluating: int | None = None
        self._batch = 1
        self._open: OpenGroups[Entry] | None = None
        self._patience: Patience | None = None
        self._offered: list[list[Entry]] = []
        self._surplus: set[int] = set()

    def shape(self, args: Any) -> None:
        """Sizes from Miles' arguments; the first call counts."""
        if self._open is None:
            self._batch = max(1, int(getattr(args, "rollout_batch_size", None) or 1))
            at_once = max(self._batch, int(getattr(args, "over_sampling_batch_size", None) or 0))
            self._open = OpenGroups(max(1, int(getattr(args, "n_samples_per_prompt", None) or 1)))
            self._patience = Patience(2 * at_once if self._give_up_groups is None else self._give_up_groups)

    def begin(self, rollout_id: int, *, evaluation: bool) -> None:
        if evaluation:
            self._evaluating = rollout_id
        else:
            self._training = rollout_id

    def collected(self, used: "set[int]") -> None:
        """The rollout is over and trains on these groups; whatever else was whole is dropped and counted."""
        offered, self._offered = self._offered, []
        for entries in offered:
            taken = entries[0].group_id in used
            self._ledger.group("" if taken else UNUSED)
            self._write(entries, "" if taken else "not used: the trainer had enough groups, or its filter dropped it")

    def failed(self, why: str) -> None:
        """The rollout broke off: what was offered to it is dropped."""
        for entries in self._offered:
            self._ledger.group(UNUSED)
            self._write(entries, why)
        self._offered.clear()

    def ended(self, entry: Entry, *, evaluation: bool) -> "EveryGroupAborted | None":
        """Returns the error to end the run with, if this was one drop too many."""
        if evaluation:
            self._write([entry], "", evaluation=True)
            return None
        if entry.history.final.outcome == NOT_WANTED or entry.group_id in self._surplus:
            self._drop_surplus([entry])
            return None
        if self._open is None or self._patience is None:
            raise RuntimeError("shape() comes first")
        entries = self._open.add(entry.group_id, entry)
        return self._group(entries, self._patience) if entries else None

    def surplus(self) -> None:
        """Enough groups are there: those that are not whole yet never will be."""
        for entries in self._open.close() if self._open else []:
            self._drop_surplus(entries)

    def close(self) -> None:
        """Writes what is held back. Safe to repeat."""
        self.surplus()
        self.failed("the rollout was not completed")

    def _group(self, entries: list[Entry], patience: Patience) -> "EveryGroupAborted | None":
        group = Group(entries[0].group_id, entries[-1].instance_id, [entry.history for entry in entries])
        reason = drop_reason(group)
        if not reason and self._training is not None:
            self._offered.append(entries)
        else:
            self._write(entries, reason)
            self._ledger.group(drop_cause(group))
        return patience.after(group)

    def _drop_surplus(self, entries: Sequence[Entry]) -> None:
        if entries[0].group_id not in self._surplus:
            self._surplus.add(entries[0].group_id)
            self._ledger.group(NOT_WANTED)
        self._write(entries, "not wanted: enough groups were collected before this one was whole")

    def _rollout(self, *, evaluation: bool) -> int:
        """Without a word from Miles: the rollout that the next kept group goes to."""
        known = self._evaluating if evaluation else self._training
        return self._start + self._ledger.groups_kept // self._batch if known is None else known

    def _write(self, entries: Sequence[Entry], reason: str, *, evaluation: bool = False) -> None:
        if self._log is None:
            return
        rollout = self._rollout(evaluation=evaluation)
        for entry in entries:
            record = trial_record(
                entry.history,
                now=datetime.now(timezone.utc),  # noqa: UP017 - Python 3.10
                rollout_id=rollout,
                group_id=entry.group_id,
                sample_id=entry.sample_id,
                instance_id=entry.instance_id,
                drop_reason=reason,
                evaluation=evaluation,
            )
            try:
                self._log.append(record)
            except OSError as error:
                logger.error("trial log: %s", error)  # noqa: TRY400 - a full disk needs no traceback for each trial
