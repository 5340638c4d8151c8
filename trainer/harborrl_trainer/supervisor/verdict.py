"""What a Ray job's end means: state, failure class and one sentence. Pure."""

import re
from dataclasses import dataclass, replace
from typing import Literal

from harborrl_trainer.errors import (
    STOPPED,
    ConfigurationError,
    InfrastructureError,
    RestartAtZeroError,
    StorageError,
)
from harborrl_trainer.failures import MEMORY_ADVICE, TORCH_WRITER, one_line
from harborrl_trainer.supervisor.ray_api import RayJob

type DriverState = Literal["STARTING", "PENDING", "RUNNING", "SUCCEEDED", "FAILED", "STOPPED"]
type FailureClass = Literal["configuration", "infrastructure", "application", "storage"]
type Cause = Literal["OutOfMemory", "DriverKilled", "RestartAtZero"]

_CLASS_OF_CODE: dict[int, FailureClass] = {
    ConfigurationError.exit_code: "configuration",
    InfrastructureError.exit_code: "infrastructure",
    StorageError.exit_code: "storage",
    RestartAtZeroError.exit_code: "storage",
}
_KILLED = frozenset({-9, 137})
_FULL = re.compile(rf"No space left on device|Disk quota exceeded|{TORCH_WRITER}", re.IGNORECASE)
_KILLED_FOR_MEMORY = re.compile(
    r"running low on memory|OOM-killed|oom[_-]kill|killed due to .*memory pressure|Memory cgroup out of memory",
    re.IGNORECASE,
)
"""Words of Ray's memory monitor and of the kernel: a signal alone tells nobody who sent it."""
_OUT_OF_MEMORY = re.compile(r"OutOfMemoryError|CUDA out of memory|std::bad_alloc|\bMemoryError\b")
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_ECHO = re.compile(r"\((?:raylet|[\w.:]+ pid=\d+)")
"""How Ray marks lines that it copies from its other processes into the driver's output."""
_ADVISED = "Miles: "
"""How a sentence begins that has its advice: a GPU's memory is not the pod's."""
_LAST_LINES = 40
"""Log lines that are searched for a cause; earlier ones may tell of troubles that were overcome."""


@dataclass(frozen=True)
class Driver:
    submission_id: str
    state: DriverState
    message: str = ""
    failure_class: FailureClass | None = None
    cause: Cause | None = None
    """Known causes that decide on more than the class: the same end met twice is not tried a third time."""
    started_at: float | None = None
    """Seconds since the epoch; None until Ray says so."""

    @property
    def submitted(self) -> bool:
        return self.state != "STARTING"

    @property
    def ended(self) -> bool:
        return self.state in {"SUCCEEDED", "FAILED", "STOPPED"}


def driver_of(job: RayJob, log_tail: str = "") -> Driver:
    """The driver as Ray tells it; `log_tail` is asked for only when the job has ended."""
    return replace(_judged(job, log_tail), started_at=job.started_at)


def _judged(job: RayJob, log_tail: str) -> Driver:
    if job.status in {"PENDING", "RUNNING", "SUCCEEDED"}:
        return Driver(job.submission_id, job.status)
    if job.status == "STOPPED":
        return Driver(job.submission_id, "STOPPED", "The driver was stopped.")
    if job.exit_code == STOPPED:
        return Driver(job.submission_id, "STOPPED", last_line(log_tail) or "The driver saved a checkpoint and stopped.")
    return _failed(job, log_tail or job.message)


def lost(submission_id: str) -> Driver:
    message = "Ray no longer knows the driver: its head was restarted. A new attempt goes on from the checkpoint."
    return Driver(submission_id, "FAILED", message, "infrastructure")


def missed(driver: Driver, seconds: float) -> Driver:
    message = (
        f"CheckpointMissed: the driver did not save within {seconds:g} s and was stopped. "
        "Raise checkpoint.graceSeconds or lower config.saveInterval."
    )
    return replace(driver, message=message)


def last_line(text: str) -> str:
    """The last line that says something; by contract a driver's own is one sentence for a person."""
    lines = [line.strip() for line in _ANSI.sub("", text).splitlines() if line.strip()]
    own = [line for line in lines if not _ECHO.match(line)]
    return one_line((own or lines)[-1]) if lines else ""


def _failed(job: RayJob, text: str) -> Driver:
    said = last_line(text)
    if job.exit_code is None:
        message = f"Ray lost the driver: {one_line(job.message, 300) or 'it gave no reason'}"
        return Driver(job.submission_id, "FAILED", message, "infrastructure")
    if job.exit_code in _CLASS_OF_CODE:
        cause = _known_cause(job.exit_code, said)
        return Driver(job.submission_id, "FAILED", said or _bare(job.exit_code), _CLASS_OF_CODE[job.exit_code], cause)
    end = "\n".join(text.splitlines()[-_LAST_LINES:])
    if _FULL.search(end):
        return Driver(job.submission_id, "FAILED", f"A volume is full: {said}", "storage")
    if job.exit_code in _KILLED:
        return Driver(job.submission_id, "FAILED", *_killed(end))
    if _OUT_OF_MEMORY.search(end):
        # The advice first: what Ray says of it is long enough to push it off the line.
        advice = "Out of memory: raise trainer.resources.limits.memory, or lower microBatchSize or maxSeqLen. "
        message = one_line(said if said.startswith(_ADVISED) else f"{advice}{said}")
        return Driver(job.submission_id, "FAILED", message, "application", "OutOfMemory")
    return Driver(job.submission_id, "FAILED", said or _bare(job.exit_code), "application")


def _killed(end: str) -> tuple[str, FailureClass, Cause]:
    if _KILLED_FOR_MEMORY.search(end) or _OUT_OF_MEMORY.search(end):
        advice = "Give the head pod more memory or lower microBatchSize or maxSeqLen."
        return f"The driver was killed (signal 9) for memory. {advice}", "infrastructure", "OutOfMemory"
    message = (
        "The driver was killed (signal 9) and nothing says by whom. If the head pod was near its memory limit, give it"
        " more memory or lower microBatchSize or maxSeqLen."
    )
    return message, "infrastructure", "DriverKilled"


def _known_cause(exit_code: int, said: str) -> Cause | None:
    if exit_code == RestartAtZeroError.exit_code:
        return "RestartAtZero"
    return "OutOfMemory" if MEMORY_ADVICE in said else None


def _bare(code: int) -> str:
    return f"The driver ended with exit code {code} and wrote nothing; look at traces/driver.log."
