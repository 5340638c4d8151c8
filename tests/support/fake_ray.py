"""Ray's job REST API as Ray 2.60 was seen to answer, with the driver's life in the test's hands."""

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import httpx

DASHBOARD = "http://ray"


@dataclass
class FakeJob:
    entrypoint: str
    body: dict[str, Any]
    status: str = "PENDING"
    message: str | None = None
    exit_code: int | None = None
    logs: str = ""

    @property
    def ended(self) -> bool:
        return self.status in {"SUCCEEDED", "FAILED", "STOPPED"}


@dataclass
class FakeRay:
    """States move only when a test says so, but for `stop`, which ends a driver as Ray does."""

    jobs: dict[str, FakeJob] = field(default_factory=dict)
    submissions: list[str] = field(default_factory=list)
    """Every submission that was taken, in order."""
    stops: list[str] = field(default_factory=list)
    down: bool = False
    """The dashboard refuses connections."""
    lose_answers: int = 0
    """So many submissions are taken but their answers lost on the way."""
    asked: Counter[str] = field(default_factory=Counter)
    """Requests by what they ask for: `logs`, or any other."""
    refuse: str = ""
    """Text with which submissions are refused as invalid (HTTP 400)."""

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.MockTransport(self._answer), base_url=DASHBOARD)

    def finish(self, submission_id: str, exit_code: int, logs: str = "") -> None:
        job = self.jobs[submission_id]
        job.status, job.exit_code, job.logs = "SUCCEEDED" if exit_code == 0 else "FAILED", exit_code, logs
        if exit_code:
            job.message = f"Job entrypoint command failed with exit code {exit_code}, last available logs:\n{logs}"

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.asked["logs" if request.url.path.endswith("/logs") else "any other"] += 1
        if self.down:
            raise httpx.ConnectError("connection refused", request=request)
        parts = request.url.path.strip("/").split("/")
        if parts[:2] != ["api", "jobs"]:
            return httpx.Response(404)
        if request.method == "POST" and len(parts) == 2:
            return self._submit(request)
        if len(parts) == 2:
            return httpx.Response(200, json=[self._details(id_) for id_ in self.jobs])
        return self._one(request.method, *parts[2:])

    def _submit(self, request: httpx.Request) -> httpx.Response:
        if self.refuse:
            return httpx.Response(400, text=self.refuse)
        body = json.loads(request.content)
        id_ = body["submission_id"]
        if id_ in self.jobs:
            said = f"Traceback\nValueError: Job with submission_id {id_} already exists. Please use another.\n."
            return httpx.Response(500, text=said)
        self.jobs[id_] = FakeJob(body["entrypoint"], body)
        self.submissions.append(id_)
        if self.lose_answers:
            self.lose_answers -= 1
            raise httpx.ReadTimeout("lost", request=request)
        return httpx.Response(200, json={"job_id": id_, "submission_id": id_})

    def _one(self, method: str, id_: str, call: str = "") -> httpx.Response:
        job = self.jobs.get(id_)
        if job is None:
            return httpx.Response(404, text=f"Job {id_} does not exist")
        if method == "POST" and call == "stop":
            self.stops.append(id_)
            stopped = not job.ended
            job.status = "STOPPED" if stopped else job.status
            return httpx.Response(200, json={"stopped": stopped})
        if call == "logs":
            return httpx.Response(200, json={"logs": job.logs})
        return httpx.Response(200, json=self._details(id_))

    def _details(self, id_: str) -> dict[str, Any]:
        job = self.jobs[id_]
        return {
            "type": "SUBMISSION",
            "job_id": None,
            "submission_id": id_,
            "status": job.status,
            "message": job.message,
            "driver_exit_code": job.exit_code,
            "start_time": 1_767_225_600_000,
            "entrypoint": job.entrypoint,
        }
