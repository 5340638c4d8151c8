"""Run every check side by side, each bounded, and leave one result document.

A volume that hangs (a dead NFS server) holds its thread for ever; so the checks run in threads that nobody waits for
past the deadline, and such a check becomes a finding of its own.
"""

import json
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from harborrl_trainer.errors import StorageError
from harborrl_trainer.job import JobDocument
from harborrl_trainer.layout import RunLayout
from harborrl_trainer.preflight import agent_server, data, model, storage
from harborrl_trainer.preflight.findings import Finding, Outcome, accepted, refuse, render

DEADLINE_SECONDS = 45.0
"""For all checks together; the operator shows a refusal within two minutes of the apply."""

type Check = Callable[[], Outcome]


def checks_of(job: JobDocument, client: httpx.Client) -> list[tuple[str, Check]]:
    """In the order a person wants to read about them."""
    run = RunLayout.of(job)

    def checkpoints_volume() -> Outcome:
        storage.clear_leftovers(job, job.attempt, time.time())
        one = max(storage.checkpoint_bytes(job, model.parameter_count(job.model.path)), storage.SCARCE_BYTES)
        return storage.check_volume("checkpoints", run.checkpoints, one, one * (job.checkpoint.keep + 1))

    def server() -> Outcome:
        return agent_server.check_agent_server(job, agent_server.fetch_health(client, job.agent_server.url))

    def volume(role: str, folder: Path) -> Check:
        return lambda: storage.check_volume(role, folder, storage.SCARCE_BYTES, storage.TIGHT_BYTES)

    return [
        ("model", lambda: model.check_model(job.model.path)),
        ("data and tasks", lambda: data.check_data(job)),
        ("agent server", server),
        ("checkpoints volume", checkpoints_volume),
        ("traces volume", volume("traces", run.traces)),
        ("trials volume", volume("trials", run.trials)),
        *_of_engine(job),
    ]


def _of_engine(job: JobDocument) -> list[tuple[str, Check]]:
    if job.engine == "native":
        return [("resume", lambda: storage.check_resume(job))]
    from harborrl_trainer.launch import launch  # noqa: PLC0415 - reads the tables of Miles' versions
    from harborrl_trainer.preflight import miles  # noqa: PLC0415 - same

    return [
        ("arguments", lambda: miles.check_arguments(job, launch)),
        ("other models", lambda: miles.check_models(job, launch)),
        ("resume", lambda: miles.check_resume(job)),
    ]


def run_checks(checks: Sequence[tuple[str, Check]], seconds: float) -> tuple[list[Finding], dict[str, Any]]:
    """Findings and merged facts, in the order of `checks`. A check that raises is re-raised: a bug, not a verdict."""
    results: dict[str, Outcome | BaseException] = {}
    done = threading.Condition()

    def work(name: str, check: Check) -> None:
        result: Outcome | BaseException
        try:
            result = check()
        except BaseException as error:  # noqa: BLE001 - handed to the main thread, which raises it
            result = error
        with done:
            results[name] = result
            done.notify()

    for name, check in checks:
        threading.Thread(target=work, args=(name, check), name=name, daemon=True).start()
    with done:
        done.wait_for(lambda: len(results) == len(checks), timeout=seconds)
        finished = dict(results)
    findings: list[Finding] = []
    facts: dict[str, Any] = {}
    for name, _ in checks:
        outcome = finished.get(name) or Outcome([_unanswered(name, seconds)])
        if isinstance(outcome, BaseException):
            raise outcome
        findings += outcome.findings
        _merge(facts, outcome.facts)
    return findings, facts


def preflight(job: JobDocument, result: Path) -> int:
    """Exit code 0: nothing refuses; 1: refused. Leaves at once, also when a check's thread still hangs."""
    with httpx.Client(follow_redirects=False, trust_env=False) as client:
        findings, facts = run_checks(checks_of(job, client), DEADLINE_SECONDS)
    text = render(findings, facts)
    sys.stdout.write(json.dumps(json.loads(text), indent=1, ensure_ascii=False) + "\n")
    try:
        result.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StorageError(
            f"{result}: cannot write the result ({error.strerror}); name another file by --result"
        ) from error
    for finding in sorted(findings, key=lambda finding: finding.severity == "refuse"):
        sys.stderr.write(f"{finding.severity}: {finding.reason}: {finding.message}\n")
    sys.stdout.flush()
    sys.stderr.flush()
    return 0 if accepted(findings) else 1


def _unanswered(name: str, seconds: float) -> Finding:
    message = f"Checking the {name} took longer than {seconds:g} s: a volume or the network hangs. Repair it."
    return refuse("storage", "CheckTimedOut", message)


def _merge(facts: dict[str, Any], more: Mapping[str, Any]) -> None:
    for key, value in more.items():
        held = facts.get(key)
        facts[key] = {**held, **value} if isinstance(held, dict) and isinstance(value, dict) else value
