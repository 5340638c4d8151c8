"""One JSON line a trial, appended and flushed as it ends (tests/contract/trial_record.json).

The operator counts rewards, drops and aborted trials from these lines, so every trial started gets exactly one.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from harborrl_trainer.rollout.trials import TrialHistory

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class TrialRecord:
    time: str
    """UTC, RFC 3339 with milliseconds, when the record was written."""
    rollout_id: int
    group_id: int
    sample_id: int
    session: str
    instance_id: str
    outcome: str
    """The agent server's exit_status, or the name of the error that kept it from answering."""
    status: str
    cause: str
    reward: float | None
    kept: bool
    drop_reason: str = ""
    evaluation: bool = False
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Per phase (queue, start, run, verify, as far as known) and `total`, which the client measured."""
    turns: int = 0
    prompt_tokens: int = 0
    response_tokens: int = 0
    weight_version: int = 0
    replaced: Mapping[str, str] | None = None
    """Session, outcome and cause of the run that this one replaced, because infrastructure had failed it."""

    def document(self) -> dict[str, Any]:
        return {
            "schemaVersion": SCHEMA_VERSION,
            "time": self.time,
            "rollout_id": self.rollout_id,
            "group_id": self.group_id,
            "sample_id": self.sample_id,
            "session": self.session,
            "instance_id": self.instance_id,
            "evaluation": self.evaluation,
            "outcome": self.outcome,
            "status": self.status,
            "cause": self.cause,
            "reward": self.reward,
            "kept": self.kept,
            "drop_reason": self.drop_reason,
            "seconds": {key: round(value, 3) for key, value in self.seconds.items()},
            "turns": self.turns,
            "tokens": {"prompt": self.prompt_tokens, "response": self.response_tokens},
            "weight_version": self.weight_version,
            "replaced": self.replaced,
        }


def trial_record(
    history: TrialHistory[Any],
    *,
    now: datetime,
    rollout_id: int,
    group_id: int,
    sample_id: int,
    instance_id: str,
    drop_reason: str,
    evaluation: bool = False,
) -> TrialRecord:
    """The line of one trial; `now` is in UTC. An evaluation drops no group: each trial counts that has a reward."""
    end, verdict, replaced = history.final, history.final.verdict, history.replaced
    if evaluation:
        drop_reason = f"aborted: {verdict.cause}" if verdict.status == "aborted" else ""
    return TrialRecord(
        time=now.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        rollout_id=rollout_id,
        group_id=group_id,
        sample_id=sample_id,
        session=end.session,
        instance_id=instance_id,
        outcome=end.outcome,
        status=verdict.status,
        cause=verdict.cause,
        reward=verdict.reward,
        kept=not drop_reason,
        drop_reason=drop_reason,
        evaluation=evaluation,
        seconds=end.seconds,
        turns=end.turns,
        prompt_tokens=end.prompt_tokens,
        response_tokens=end.response_tokens,
        weight_version=end.weight_version,
        replaced={"session": replaced.session, "outcome": replaced.outcome, "cause": replaced.verdict.cause}
        if replaced
        else None,
    )


class TrialLog:
    """Appends whole lines with one write each: a reader, or a crash, sees at most one torn line, the last.

    Opening repairs a torn last line by ending it, so that the next record is not glued to it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            size = os.fstat(self._descriptor).st_size
            if size and os.pread(self._descriptor, 1, size - 1) != b"\n":
                self._write(b"\n")
        except OSError:
            self.close()
            raise

    def append(self, record: TrialRecord) -> None:
        line = json.dumps(record.document(), allow_nan=False, separators=(",", ":")) + "\n"
        self._write(line.encode())

    def _write(self, data: bytes) -> None:
        """All of it: a short write is how a volume begins to be full, the next one says so."""
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
        except OSError as error:
            error.filename = str(self._path)
            raise

    def close(self) -> None:
        os.close(self._descriptor)
