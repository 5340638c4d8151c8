"""A dashboard over runs that a test makes up, with trial directories as Harbor leaves them."""

import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harborrl_agent_server.dashboard.app import create_dashboard
from harborrl_agent_server.dashboard.feed import Feed
from harborrl_agent_server.dashboard.redaction import Redactor
from harborrl_agent_server.dashboard.state import StepReward
from harborrl_agent_server.dashboard.steps import StepRecords
from harborrl_agent_server.dashboard.trials import TrialReader
from harborrl_agent_server.phases import Phase
from harborrl_agent_server.settings import JobIdentity, Settings
from harborrl_agent_server.snapshot import RunView, Snapshot
from support.agent_http import serving


@dataclass
class Board:
    """The runs that the dashboard sees; a test changes them."""

    live: list[RunView] = field(default_factory=list)
    finished: list[RunView] = field(default_factory=list)
    """Newest first."""
    outcomes: Mapping[str, int] = field(default_factory=dict)
    capacity: int = 8
    leaked: int = 0
    status: str = "ok"
    workers: int = 1
    silent: tuple[int, ...] = ()

    async def look(self) -> tuple[str, Snapshot]:
        queued = sum(view.phase is Phase.QUEUED for view in self.live)
        taken = len(self.live) - queued
        return self.status, Snapshot(
            tuple(self.live),
            tuple(self.finished),
            self.outcomes,
            self.capacity,
            taken,
            queued,
            self.leaked,
            workers=self.workers,
            silent=self.silent,
        )


def running(name: str, phase: Phase = Phase.RUNNING, **changes: Any) -> RunView:
    view = RunView(
        key=name,
        id=name,
        instance_id=f"task-{name}",
        agent="bash",
        session="0f3d9c1b2a4e4f0d8c7b6a5948372615",
        phase=phase,
        age_s=130,
        phase_age_s=60,
        slot_age_s=None if phase is Phase.QUEUED else 90,
        agent_age_s=60 if phase is Phase.RUNNING else None,
        cause=None,
        outcome=None,
        reward=None,
        trial_name=None if phase is Phase.QUEUED else f"task-{name}-0123456789ab",
        ended_s_ago=None,
    )
    return replace(view, **changes)


def ended(name: str, outcome: str = "Submitted", *, reward: float | None = 1.0, **changes: Any) -> RunView:
    finished = {"outcome": outcome, "reward": reward, "ended_s_ago": 30, "slot_age_s": 100, **changes}
    return running(name, Phase.DONE, **finished)


@contextlib.asynccontextmanager
async def dashboard(
    root: Path, board: Board, steps: Callable[[], tuple[StepReward, ...]] | None = None, **changes: Any
) -> AsyncIterator[tuple[str, Feed]]:
    """Its address and its feed. Trials are read from `root/harbor`, tasks from `root/tasks`, steps from `root`."""
    settings = replace(
        Settings(
            tasks_dir=root / "tasks",
            trials_dir=root / "harbor",
            dashboard_port=8080,
            job=JobIdentity("research", "quickstart", "5f0c2a9e"),
            pod_name="quickstart-agent-6c5d7f9b4-x2x9k",
        ),
        **changes,
    )
    for folder in (settings.tasks_dir, settings.trials_dir):
        folder.mkdir(exist_ok=True)
    redact = Redactor([settings.admin_secret])
    with ThreadPoolExecutor(1) as threads:
        feed = Feed(board, steps or StepRecords(root).look, threads=threads)
        reader = TrialReader(settings.trials_dir, settings.tasks_dir, redact)
        async with serving(create_dashboard(settings, feed, reader, threads, "0.1.0")) as url:
            try:
                yield url, feed
            finally:
                feed.close()


def write_trial(root: Path, name: str, files: Mapping[str, Any]) -> Path:
    """A trial's directory below `root/harbor`; texts as they are, everything else as JSON."""
    folder = root / "harbor" / name
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


def bash_trial(*exchanges: tuple[str, str], instruction: str = "Write hello to /app/greeting.txt.") -> dict[str, Any]:
    """`agent/trajectory.json` of our bash agent: one worked example, then (reply, observation) pairs."""
    messages = [
        {"role": "system", "content": "You solve tasks in a Linux shell."},
        {"role": "user", "content": "Create /app/color.txt with the text blue."},
        {"role": "assistant", "content": "```sh\necho blue > /app/color.txt\n```"},
        {"role": "user", "content": "exit code 0\n(no output)"},
        {"role": "assistant", "content": "TASK_DONE"},
        {"role": "user", "content": instruction},
    ]
    for reply, seen in exchanges:
        messages.append({"role": "assistant", "content": reply})
        if seen:
            messages.append({"role": "user", "content": seen})
    return {
        "schema": "harborrl-bash/1",
        "model": "model",
        "end": "Submitted",
        "progress": {"turns": len(exchanges)},
        "messages": messages,
    }


def record(instance_id: str = "write-greeting", *, answer: Mapping[str, Any] | None = None, **request: Any) -> Any:
    """`run.json` of an ended trial."""
    return {
        "request": {"instance_id": instance_id, "agent_name": "bash", "model": "openai/model", **request},
        "run_id": "0123456789ab",
        "answer": {
            "reward": 1.0,
            "exit_status": "Submitted",
            "eval_report": {"reward": 1.0},
            "agent_metrics": {"turns": 2.0, "tool_calls": 1.0, "model_query_time_sum": 3.1},
            "infra_failure": False,
            "exception_type": None,
            "message": None,
            "phase_seconds": {"queue": 0.4, "start": 0.9, "setup": 0.1, "run": 3.6, "verify": 0.4},
            "warnings": [],
            **(answer or {}),
        },
    }
