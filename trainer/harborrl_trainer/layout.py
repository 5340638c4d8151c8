"""Where a run's files lie (docs/contracts.md, "On disk"): path arithmetic, and the way back from a name to its ids."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

from harborrl_trainer.job import JobDocument

COMPLETE_MARK = "complete.json"
"""A checkpoint directory without this file is torn: it is never loaded and never counted."""

LAUNCH_FOLDER = "launch"
"""Beside an incarnation's checkpoints, with engine miles: its plan, and the files that Miles reads."""

type NameReader = Callable[[str], int | None]
"""A file or directory name in, the number it carries out; None for a foreign name."""


class IncarnationId(NamedTuple):
    """One head pod life. Compares as time does: a later attempt, then a later incarnation, is greater."""

    attempt: int
    incarnation: int


@dataclass(frozen=True)
class IncarnationLayout:
    """The folders that one incarnation alone writes to."""

    id: IncarnationId
    traces: Path
    checkpoints: Path
    trials: Path

    @property
    def rollout_data(self) -> Path:
        return self.traces / "rollout_data"

    @property
    def train_data(self) -> Path:
        return self.traces / "train_data"

    @property
    def driver_log(self) -> Path:
        return self.traces / "driver.log"

    @property
    def metrics(self) -> Path:
        return self.traces / "metrics.jsonl"

    @property
    def latest_checkpoint(self) -> Path:
        """Text file holding the rollout id of the newest checkpoint of this incarnation."""
        return self.checkpoints / "latest_checkpointed_iteration.txt"

    @property
    def stop_request(self) -> Path:
        """Asks the driver to save and end with exit code 75. The driver looks for it between trials; any content."""
        return self.checkpoints / "save-and-stop"

    def rollout_file(self, rollout: int, *, evaluation: bool = False) -> Path:
        return self.rollout_data / f"{_eval_prefix(evaluation)}{rollout}.pt"

    def train_file(self, rollout: int, rank: int) -> Path:
        return self.train_data / f"{rollout}_{rank}.pt"

    def trajectory_file(self, rollout: int, *, evaluation: bool = False) -> Path:
        return self.traces / "trajectory" / f"{_eval_prefix(evaluation)}{rollout}.jsonl"

    def checkpoint(self, rollout: int) -> Path:
        return self.checkpoints / f"iter_{rollout:07d}"


@dataclass(frozen=True)
class RunLayout:
    """The run's folder on each writable volume."""

    traces: Path
    checkpoints: Path
    trials: Path

    @classmethod
    def of(cls, job: JobDocument) -> Self:
        storage = job.storage
        return cls(storage.traces / job.run_path, storage.checkpoints / job.run_path, storage.trials / job.run_path)

    @property
    def index(self) -> Path:
        return self.checkpoints / "index.json"

    def incarnation(self, attempt: int, incarnation: int) -> IncarnationLayout:
        folder = f"a{attempt}/i{incarnation}"
        return IncarnationLayout(
            id=IncarnationId(attempt, incarnation),
            traces=self.traces / folder / "traces",
            checkpoints=self.checkpoints / folder / "checkpoints",
            trials=self.trials / folder / "trials",
        )

    def harbor_trial(self, trial_name: str) -> Path:
        return self.trials / "harbor" / trial_name


class RolloutName(NamedTuple):
    rollout: int
    evaluation: bool


class TrainName(NamedTuple):
    rollout: int
    rank: int


def attempt_of(name: str) -> int | None:
    return _number(r"a([1-9]\d*)", name)


def incarnation_of(name: str) -> int | None:
    return _number(r"i([1-9]\d*)", name)


def checkpoint_of(name: str) -> int | None:
    """Rollout id in a checkpoint directory's name; more than seven digits are read too."""
    return _number(r"iter_(\d{7,})", name)


def rollout_of(name: str) -> RolloutName | None:
    found = re.fullmatch(r"(eval_)?(\d+)\.pt", name)
    return RolloutName(int(found[2]), found[1] is not None) if found else None


def train_of(name: str) -> TrainName | None:
    found = re.fullmatch(r"(\d+)_(\d+)\.pt", name)
    return TrainName(int(found[1]), int(found[2])) if found else None


def submission_id(job_name: str, attempt: int, incarnation: int) -> str:
    """The Ray job id under which this incarnation's driver is submitted, and never any other driver."""
    return f"{job_name}-a{attempt}-i{incarnation}"


def incarnation_of_submission(submission: str, job_name: str, attempt: int) -> int | None:
    prefix = f"{job_name}-a{attempt}-"
    return incarnation_of(submission.removeprefix(prefix)) if submission.startswith(prefix) else None


def _number(pattern: str, name: str) -> int | None:
    found = re.fullmatch(pattern, name, flags=re.ASCII)
    return int(found[1]) if found else None


def _eval_prefix(evaluation: bool) -> str:
    return "eval_" if evaluation else ""
