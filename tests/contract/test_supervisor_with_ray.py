"""The one thing that a fake of Ray cannot show: that Ray itself behaves as the fake says."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harborrl_trainer import files
from harborrl_trainer.layout import RunLayout
from support import jobs
from support.local_ray import eventually, local_ray

ROOT = Path(__file__).resolve().parents[2]
RAY_TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0123456789abcdef" * 4}
PYTHONPATH = os.pathsep.join(str(ROOT / folder) for folder in ("trainer", "tests"))


@contextmanager
def supervisor(folder: Path, dashboard: str) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / "supervisor.log").open("ab") as log:
        process = subprocess.Popen(  # noqa: S603 - our own command
            [sys.executable, "-m", "support.local_supervisor", str(folder), dashboard],
            env={**os.environ, **RAY_TOKEN, "PYTHONPATH": PYTHONPATH},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_supervisor_killed_in_the_middle_attaches_again_and_ends_the_driver_in_order(tmp_path: Path) -> None:
    jobs.make_volumes(tmp_path)
    job = jobs.job(tmp_path)
    (tmp_path / "job.json").write_text(job.model_dump_json(by_alias=True))
    (tmp_path / "marks").mkdir()
    mine = RunLayout.of(job).incarnation(1, 1)
    drivers = mine.traces / "drivers.txt"

    def progress() -> dict[str, Any]:
        path = tmp_path / "progress.json"
        return json.loads(path.read_text()) if path.exists() else {"driver": {"state": None}}

    def state() -> str | None:
        found: str | None = progress()["driver"]["state"]
        return found

    environment = {"HARBORRL_JOB": str(tmp_path / "job.json"), "PYTHONPATH": PYTHONPATH, **RAY_TOKEN}
    with local_ray(tmp_path, environment) as dashboard:
        with supervisor(tmp_path, dashboard) as first:
            eventually(drivers.exists, "the driver runs", tmp_path)
            first.send_signal(signal.SIGKILL)
        with supervisor(tmp_path, dashboard) as second:
            eventually(lambda: state() == "RUNNING", "the second supervisor sees the driver run", tmp_path)
            request = {"schemaVersion": 1, "uid": job.job.uid, "id": "r", "stop": {"attempt": 1, "incarnation": 1}}
            files.replace(tmp_path / "request.json", json.dumps(request))
            eventually(lambda: state() == "STOPPED", "the driver stops as it was asked", tmp_path)
            (tmp_path / "marks" / "terminating").touch()
            eventually((tmp_path / "marks" / "released").exists, "the pod is released", tmp_path)
            second.send_signal(signal.SIGTERM)
            assert second.wait(timeout=180) == 0

    assert len(drivers.read_text().splitlines()) == 1
    final = progress()
    assert final["driver"]["message"] == "saved checkpoint 0 and stopped as asked"
    assert final["driver"]["failureClass"] is None
    assert final["driver"]["startedAt"] is not None
    assert final["request"]["id"] == "r"
    assert final["checkpoint"]["rolloutId"] == 0
    assert final["rollout"]["collected"] == 1
    assert "saved checkpoint 0" in mine.driver_log.read_text()
