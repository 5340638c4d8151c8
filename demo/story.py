"""Pure: what there is to tell about a HarborRLJob since the last look, and when the story is over."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

Job = dict[str, Any]


@dataclass(frozen=True)
class Condition:
    """One entry of status.conditions as far as a reader cares."""

    status: str
    reason: str
    message: str


def conditions(job: Job) -> dict[str, Condition]:
    listed = job.get("status", {}).get("conditions", [])
    return {c["type"]: Condition(c["status"], c.get("reason", ""), c.get("message", "")) for c in listed}


def is_finished(job: Job) -> bool:
    finished = conditions(job).get("Finished")
    return finished is not None and finished.status == "True"


def succeeded(job: Job) -> bool:
    condition = conditions(job).get("Succeeded")
    return condition is not None and condition.status == "True"


def minutes_taken(job: Job) -> float:
    """From the start to the end of a finished job, whoever watched."""
    status = job["status"]
    taken = datetime.fromisoformat(status["finishedAt"]) - datetime.fromisoformat(status["startedAt"])
    return taken.total_seconds() / 60


def refusal(job: Job) -> str | None:
    """The message of Admitted=False: the job holds nothing and waits for a change of its spec."""
    admitted = conditions(job).get("Admitted")
    if admitted is None or admitted.status != "False":
        return None
    return f"{admitted.reason}: {admitted.message}"


def progress(job: Job) -> str:
    rollout = job.get("status", {}).get("rollout") or {}
    if not rollout.get("total"):
        return ""
    reward = rollout.get("rewardMean")
    mean = "" if reward is None else f", mean reward {reward:.3f}"
    return f"trained {rollout.get('trained', 0)} of {rollout['total']} rollouts{mean}"


def news(before: Job, now: Job) -> list[str]:
    """One line for each thing that changed: phase, conditions, progress."""
    lines = []
    phase = now.get("status", {}).get("phase", "")
    if phase != before.get("status", {}).get("phase", ""):
        lines.append(f"phase {phase}")
    old = conditions(before)
    for kind, condition in conditions(now).items():
        if old.get(kind) != condition:
            lines.append(f"  {kind}={condition.status} ({condition.reason}) {condition.message}".rstrip())
    if progress(now) and progress(now) != progress(before):
        lines.append(f"  {progress(now)}")
    return lines
