"""The progress document (tests/contract/progress.json), and when it is worth a write. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harborrl_trainer.failures import one_line
from harborrl_trainer.job import JobDocument
from harborrl_trainer.layout import IncarnationId
from harborrl_trainer.space import Space, coarse
from harborrl_trainer.supervisor.agents import ServerLoad
from harborrl_trainer.supervisor.disk import Seen
from harborrl_trainer.supervisor.verdict import Driver

SCHEMA_VERSION = 1
WRITE_SECONDS = 10.0
"""Least time between two writes while a run is on: a thousand jobs then cost at most 100 writes a second."""
NOTICES, NOTICE_LIMIT = 10, 256
"""Of the driver's: so many, of so many characters each."""
LOAD_WRITE_SECONDS = 60.0
"""The same when nothing but the agent server's load has changed, which it does all the time."""


@dataclass(frozen=True)
class Report:
    """What one tick of the supervisor knows."""

    driver: Driver
    seen: Seen
    load: ServerLoad | None = None
    oldest_trial_since: float | None = None
    """When the agent server's oldest trial began, seconds since the epoch."""
    request: str | None = None
    """Id of the operator's request that the driver was told."""
    flushed: int | None = None
    """Trials that were cancelled after the driver's end."""
    notices: tuple[str, ...] = ()
    """What the run lacks or does otherwise than was written."""


def document(job: JobDocument, mine: IncarnationId, report: Report) -> dict[str, Any]:
    """All of the document but `sequence` and `observedAt`, which belong to the write."""
    driver, seen = report.driver, report.seen
    return {
        "schemaVersion": SCHEMA_VERSION,
        "uid": job.job.uid,
        "attempt": mine.attempt,
        "incarnation": mine.incarnation,
        "driver": {
            "submissionId": driver.submission_id,
            "state": driver.state,
            "message": driver.message,
            "failureClass": driver.failure_class,
            "cause": driver.cause,
            "startedAt": None if driver.started_at is None else timestamp(driver.started_at),
        },
        "notices": [one_line(notice, NOTICE_LIMIT) for notice in report.notices[:NOTICES]],
        "request": {"id": report.request, "flushed": report.flushed} if report.request else None,
        **_start(mine, seen),
        "rollout": _rollout(job, seen),
        "eval": _evaluation(seen),
        "checkpoint": _checkpoint(job.storage.checkpoints, seen),
        "agentServer": _agent_server(report),
        "volumes": {
            role: {
                "freeBytes": coarse(space.free_bytes),
                "neededBytes": coarse(space.needed_bytes),
                "low": space.is_low,
            }
            for role, space in seen.space.items()
        },
    }


def worth_writing(
    written: Mapping[str, Any] | None, candidate: Mapping[str, Any], seconds_since_write: float, *, final: bool
) -> bool:
    """Write on change only, at most every 10 s; a final state at once."""
    before = written or {}
    if _steady(candidate) != _steady(before):
        return final or seconds_since_write >= WRITE_SECONDS
    return candidate["agentServer"] != before.get("agentServer") and seconds_since_write >= LOAD_WRITE_SECONDS


def stamp(document: Mapping[str, Any], sequence: int, now: float) -> dict[str, Any]:
    return {**document, "sequence": sequence, "observedAt": timestamp(now)}


def timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _rollout(job: JobDocument, seen: Seen) -> dict[str, Any]:
    dumps, trials = seen.dumps, seen.trials
    return {
        "collected": dumps.collected,
        "trained": dumps.trained,
        "total": job.config.num_rollout,
        "lastDumpTime": None if dumps.last_dump_time is None else timestamp(dumps.last_dump_time),
        "medianSeconds": _rounded(dumps.median_seconds, 1),
        "rewardMean": _rounded(seen.reward_mean, 4),
        "droppedGroups": trials.dropped_groups,
        "lostRollouts": dumps.lost_rollouts,
        "trials": trials.trials,
        "aborted": trials.aborted,
    }


def _evaluation(seen: Seen) -> dict[str, Any] | None:
    """The newest evaluation whose dump is there, beside the first one."""
    newest = seen.dumps.evaluated
    if newest is None or newest not in seen.evaluations:
        return None
    baseline = seen.evaluations[min(seen.evaluations)]
    return {"rollout": newest, "mean": _rounded(seen.evaluations[newest], 4), "baseline": _rounded(baseline, 4)}


def _checkpoint(volume: Path, seen: Seen) -> dict[str, Any] | None:
    if seen.checkpoint is None:
        return None
    return {
        "rolloutId": seen.checkpoint.rollout,
        "path": str(seen.checkpoint.path.relative_to(volume)),
        "savedAt": None if seen.checkpoint.saved_at is None else timestamp(seen.checkpoint.saved_at),
    }


def _start(mine: IncarnationId, seen: Seen) -> dict[str, Any]:
    """Where this incarnation began; nothing before its driver has claimed."""
    claim = next((claim for claim in seen.claims if claim.id == mine), None)
    if claim is None:
        return {"resumedFrom": None, "resume": None}
    return {
        "resumedFrom": claim.resumed_from,
        "resume": {
            "firstRollout": claim.first_rollout,
            "optimizer": claim.optimizer,
            "setAside": list(claim.set_aside),
        },
    }


def _agent_server(report: Report) -> dict[str, Any] | None:
    if report.load is None:
        return None
    since = report.oldest_trial_since
    return {
        "capacity": report.load.capacity,
        "inFlight": report.load.in_flight,
        "oldestTrialSince": None if since is None else timestamp(since),
    }


def _volume(space: Space) -> dict[str, Any]:
    return {"freeBytes": coarse(space.free_bytes), "neededBytes": coarse(space.needed_bytes), "low": space.is_low}


_RESTLESS = frozenset({"agentServer", "volumes", "sequence", "observedAt"})
"""Parts that change all the time. Of the volumes' room only that it becomes short is worth a write of its own."""


def _steady(document: Mapping[str, Any]) -> dict[str, Any]:
    low = sorted(role for role, space in (document.get("volumes") or {}).items() if space.get("low"))
    rest = {key: value for key, value in document.items() if key not in _RESTLESS}
    return {**rest, "low": low}


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
