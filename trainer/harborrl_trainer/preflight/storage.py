"""Can the run write where it must, is there room, and which checkpoint will it go on from."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

from harborrl_trainer import checkpoints, index, leftovers
from harborrl_trainer.errors import RestartAtZeroError, TrainerError
from harborrl_trainer.job import JobDocument
from harborrl_trainer.layout import IncarnationId, RunLayout
from harborrl_trainer.preflight.findings import Finding, Outcome, refuse, warn
from harborrl_trainer.space import MIB, SCARCE_BYTES, TIGHT_BYTES, FreeBytes, free_bytes

__all__ = ["MIB", "SCARCE_BYTES", "TIGHT_BYTES", "check_resume", "check_volume", "checkpoint_bytes", "clear_leftovers"]

_PROBE = b"harborrl" * 512
_BYTES_WITH_OPTIMIZER = 12
"""Bytes a parameter: fp32 weight and Adam's two fp32 moments."""
_BYTES_WITHOUT = 4


type WriteTest = Callable[[Path], None]
"""Writes to a folder and leaves it clean; raises what the system says."""


def check_volume(
    role: str,
    folder: Path,
    least: int,
    comfortable: int,
    *,
    free: FreeBytes = free_bytes,
    write_test: WriteTest | None = None,
) -> Outcome:
    """`folder` is the run's own on the volume; it is made, written to and left. Facts: `freeBytes.<role>`."""
    try:
        (write_test or _write_test)(folder)
        available = free(folder)
    except OSError as error:
        return Outcome([_not_written(role, folder, error, least, free)])
    return Outcome(_space(role, folder, available, least, comfortable), {"freeBytes": {role: available}})


def checkpoint_bytes(job: JobDocument, parameters: int) -> int:
    """A checkpoint's likely size; an estimate, high rather than low (an engine may save half precision)."""
    if job.lora is not None:
        return 0
    return parameters * (_BYTES_WITHOUT if job.config.no_save_optim else _BYTES_WITH_OPTIMIZER)


def check_resume(job: JobDocument) -> Outcome:
    """Facts: `resume`, the checkpoint the next incarnation will load, or null for a start from the model."""
    run = RunLayout.of(job)
    try:
        found = checkpoints.list_checkpoints(run.checkpoints)
        start = checkpoints.find_start(job)
        newest = checkpoints.newest_complete(found, index.read_claims(run.index))
    except RestartAtZeroError as error:
        return Outcome([refuse("resume", "RestartAtZero", str(error))])
    except TrainerError as error:
        return Outcome([refuse("resume", "ResumeSourceInvalid", str(error))])
    except OSError as error:
        message = f"{run.checkpoints}: cannot be read ({error.strerror}). Give the trainer's user read access."
        return Outcome([refuse("resume", "VolumeNotReadable", message)])
    torn = [saved for saved in found if not saved.complete and (newest is None or saved.rollout > newest.rollout)]
    facts = {"rolloutId": start.first_rollout - 1, "path": _below(job, start.checkpoint)} if start.checkpoint else None
    if not torn:
        return Outcome([], {"resume": facts})
    goes_on = (
        f"rollout {start.first_rollout}" if start.checkpoint else "rollout 0, from the model: no whole one is left"
    )
    message = f"{_below(job, torn[-1].path)} has no complete.json and is torn: the run goes on from {goes_on}."
    return Outcome([warn("resume", "CheckpointIncomplete", message)], {"resume": facts})


def clear_leftovers(job: JobDocument, attempt: int, now: float) -> None:
    """Removes what saves of earlier attempts left when they were cut off: garbage is no reason to refuse a run.

    `now` in seconds since the epoch. Nothing of `attempt` itself, and nothing that is still being written.
    """
    leftovers.clear(RunLayout.of(job), IncarnationId(attempt, 0), idle_since=now - leftovers.IDLE_SECONDS)


def _not_written(role: str, folder: Path, error: OSError, least: int, free: FreeBytes) -> Finding:
    where = f"storage.{role}: cannot write to {folder} ({error.strerror})"
    match error.errno:
        case errno.ENOSPC:
            room = f"{_free_below(folder, free)}, at least {least // MIB} MiB and a free inode are needed"
            message = f"{where}: {room}. Make room, grow the claim or name a larger one."
            return refuse("storage", "LowSpace", message)
        case errno.EDQUOT:
            room = f"the quota of the trainer's user or group is used up, at least {least // MIB} MiB are needed"
            return refuse("storage", "LowSpace", f"{where}: {room}. Make room below the quota or raise it.")
        case errno.EROFS:
            advice = (
                "The volume is mounted read-only, or its file system gave up after an error: "
                "look at the claim's access modes and at the volume, or name another claim."
            )
        case errno.EIO | errno.ESTALE:
            advice = "The volume or its server is broken: repair it, or name another claim."
        case _:
            advice = "Give the trainer's user (fsGroup) write access to the volume, or name another claim."
    return refuse("storage", "VolumeNotWritable", f"{where}. {advice}")


def _free_below(folder: Path, free: FreeBytes) -> str:
    """In words; the run's own folder is not there when there was no room for it."""
    for place in (folder, *folder.parents):
        try:
            return f"{free(place) // MIB} MiB are free"
        except FileNotFoundError:
            continue
        except OSError:
            break
    return "free space unknown"


def _space(role: str, folder: Path, available: int, least: int, comfortable: int) -> list[Finding]:
    if available >= comfortable:
        return []
    numbers = f"storage.{role}: {available // MIB} MiB are free at {folder}"
    if available < least:
        message = f"{numbers}, at least {least // MIB} MiB are needed. Make room or name a larger claim."
        return [refuse("storage", "LowSpace", message)]
    message = f"{numbers}; {comfortable // MIB} MiB would be comfortable for the whole run. Watch it or make room."
    return [warn("storage", "LowSpace", message)]


def _write_test(folder: Path) -> None:
    """Write, flush, rename, read back, remove: what a checkpoint does, on 4 KiB."""
    folder.mkdir(parents=True, exist_ok=True)
    probe, renamed = (folder / f".preflight-{os.getpid()}{suffix}" for suffix in ("", ".renamed"))
    try:
        with probe.open("wb") as stream:
            stream.write(_PROBE)
            stream.flush()
            os.fsync(stream.fileno())
        probe.rename(renamed)
        if renamed.read_bytes() != _PROBE:
            raise OSError(0, "what was written was not read back")
    finally:
        probe.unlink(missing_ok=True)
        renamed.unlink(missing_ok=True)


def _below(job: JobDocument, path: Path | None) -> str:
    return os.path.relpath(path, job.storage.checkpoints) if path else ""
