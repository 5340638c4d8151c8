"""One trial as its page shows it, put together from its directory. Blocking: to be called in a thread."""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from harborrl_agent_server.contract import ExitStatus
from harborrl_agent_server.dashboard.families import family
from harborrl_agent_server.dashboard.files import TrialFiles, UnreadableError, visible
from harborrl_agent_server.dashboard.redaction import Redactor, solution_lines, without_solution
from harborrl_agent_server.dashboard.trajectory import trajectory
from harborrl_agent_server.tasks import InvalidInstanceIdError, TaskNotFoundError, task_directory

ORACLE_HIDDEN = "The oracle runs the task's own solution, which is not shown."

SOLUTION_BYTES = 256 * 1024
"""Of one file of a task's solution that is looked at in order to hide its lines."""

SOLUTION_FILES = 50


class TrialReader:
    """Reads trial directories; everything that leaves here has been redacted."""

    def __init__(self, trials_dir: Path, tasks_dir: Path, redact: Redactor) -> None:
        self._trials_dir = trials_dir
        self._tasks_dir = tasks_dir
        self._redact = redact

    def read(self, name: str) -> dict[str, Any]:
        """The page's document; raises FileNotFoundError for an unknown trial."""
        files = TrialFiles(self._trials_dir, name)
        problems: list[str] = []
        record = mapping(noting(problems, lambda: files.json("run.json")))
        request, answer = mapping(record.get("request")), mapping(record.get("answer"))
        document = {
            "trial": name,
            "ended": bool(answer),
            "request": self._request(request),
            "answer": self._answer(answer),
            "trajectory": self._trajectory(files, request, problems),
            "verifier": self._verifier(files, str(request.get("instance_id", "")), problems),
            "exception": self._text(noting(problems, lambda: files.text("exception.txt"))),
            "problems": problems,
        }
        return mapping(cleaned(document, self._redact))

    def _request(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Named fields alone: whatever a later version adds to the record stays on the volume."""
        shown = ("instance_id", "agent_name", "model", "max_seq_len", "session_server_instance_id", "sampling_params")
        return {key: request[key] for key in shown if request.get(key) is not None}

    def _answer(self, answer: Mapping[str, Any]) -> dict[str, Any] | None:
        if not answer:
            return None
        status = str(answer.get("exit_status") or ExitStatus.SERVER_ERROR)
        shown = ("infra_failure", "eval_report", "agent_metrics", "exception_type", "message", "phase_seconds")
        return {
            "exit_status": status,
            "family": family(status),
            "reward": answer.get("reward") if answer.get("eval_report") else None,
            "warnings": answer.get("warnings") or [],
            **{key: answer[key] for key in shown if answer.get(key) is not None},
        }

    def _trajectory(self, files: TrialFiles, request: Mapping[str, Any], problems: list[str]) -> dict[str, Any] | None:
        if request.get("agent_name") == "oracle":
            problems.append(ORACLE_HIDDEN)
            return None
        document = noting(problems, lambda: files.json("agent", "trajectory.json"))
        if document is None:
            return None
        found = trajectory(document)
        if found is None:
            problems.append("agent/trajectory.json is in a format that this page does not know.")
        return asdict(found) if found else None

    def _verifier(self, files: TrialFiles, instance_id: str, problems: list[str]) -> dict[str, str]:
        solution = self._solution(instance_id)
        shown = {}
        for name in ("test-stdout.txt", "test-stderr.txt", "reward.json", "reward.txt"):
            text = self._text(noting(problems, lambda name=name: files.text("verifier", name)))  # type: ignore[misc] # mypy infers no default
            if text is not None:
                shown[name] = without_solution(text, solution)
        return shown

    def _text(self, found: Any) -> str | None:
        return None if found is None else str(found.text)

    def _solution(self, instance_id: str) -> frozenset[str]:
        try:
            folder = task_directory(self._tasks_dir, instance_id) / "solution"
            files = [path for path in sorted(folder.rglob("*")) if path.is_file()][:SOLUTION_FILES]
            return solution_lines(head(path) for path in files)
        except (InvalidInstanceIdError, TaskNotFoundError, OSError):
            return frozenset()


def head(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(SOLUTION_BYTES).decode(errors="replace")


def noting(problems: list[str], read: Callable[[], Any]) -> Any:
    """What `read` returns; None, and a line for the page, when it cannot be read."""
    try:
        return read()
    except UnreadableError as error:
        problems.append(str(error))
        return None


def mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def cleaned(value: Any, redact: Redactor) -> Any:
    """The same document with every text in it made visible and redacted; it also ends non-finite numbers."""
    if isinstance(value, str):
        return redact(visible(value))
    if isinstance(value, dict):
        return {cleaned(str(key), redact): cleaned(inner, redact) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [cleaned(inner, redact) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
