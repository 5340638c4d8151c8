"""The part of Ray's job REST API that the supervisor speaks, on localhost. Nothing of Ray is imported.

Seen on Ray 2.60: a second submit under the same id is HTTP 500 whose text says "already exists"; an unknown job is 404;
stopping a job that has ended is 200 with `stopped: false`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

import httpx

type RayStatus = Literal["PENDING", "RUNNING", "SUCCEEDED", "FAILED", "STOPPED"]

LOG_TAIL_BYTES = 1024 * 1024
_STATUSES = frozenset(get_args(RayStatus.__value__))


class RayUnavailableError(Exception):
    """The dashboard is not up, or answers nonsense: ask again later, conclude nothing."""


class SubmissionRefusedError(Exception):
    """Ray understood the submission and will not take it. Asking again is useless."""


@dataclass(frozen=True)
class RayJob:
    submission_id: str
    status: RayStatus
    message: str = ""
    exit_code: int | None = None
    started_at: float | None = None
    """Seconds since the epoch."""

    @property
    def ended(self) -> bool:
        return self.status in {"SUCCEEDED", "FAILED", "STOPPED"}


class RayApi:
    def __init__(self, client: httpx.AsyncClient) -> None:
        """`client` has the dashboard's base URL and a time-out."""
        self._client = client

    async def submissions(self) -> list[str]:
        """Ids of every job that this Ray cluster was ever given by submission."""
        answer = await self._send("GET", "/api/jobs/")
        if not isinstance(answer, list):
            raise RayUnavailableError("the list of jobs is not a list")
        return [str(job["submission_id"]) for job in answer if isinstance(job, dict) and job.get("submission_id")]

    async def job(self, submission_id: str) -> RayJob | None:
        """The job, or None when this Ray cluster does not know it."""
        answer = await self._send("GET", f"/api/jobs/{submission_id}", absent_ok=True)
        return None if answer is None else _job(submission_id, answer)

    async def submit(self, submission_id: str, entrypoint: str, env: Mapping[str, str] | None = None) -> None:
        """Submit unless a job of this id exists: safe to repeat, also after an answer was lost.

        `env` is added to the Ray containers' own for every process of the job. Ray keeps it in its records: no secrets.
        """
        body: dict[str, Any] = {"entrypoint": entrypoint, "submission_id": submission_id, "entrypoint_num_cpus": 0}
        if env:
            body["runtime_env"] = {"env_vars": dict(env)}
        response = await self._request("POST", "/api/jobs/", json=body)
        if response.status_code == 200 or "already exists" in response.text:
            return
        if 400 <= response.status_code < 500:
            raise SubmissionRefusedError(_last_line(response.text) or f"HTTP {response.status_code}")
        raise RayUnavailableError(f"submit gave HTTP {response.status_code}: {_last_line(response.text)}")

    async def stop(self, submission_id: str) -> None:
        """Ask Ray to end the job: SIGTERM, and SIGKILL 3 s later. Nothing happens when it has ended or never was."""
        await self._send("POST", f"/api/jobs/{submission_id}/stop", absent_ok=True)

    async def log_tail(self, submission_id: str, limit: int = LOG_TAIL_BYTES) -> str:
        """The end of the driver's output. Ray has no call for a tail: all of it crosses localhost, `limit` is kept."""
        kept = bytearray()
        try:
            async with self._client.stream("GET", f"/api/jobs/{submission_id}/logs") as response:
                if response.status_code != 200:
                    raise RayUnavailableError(f"logs gave HTTP {response.status_code}")
                whole = True
                async for chunk in response.aiter_bytes():
                    kept += chunk
                    whole = whole and len(kept) <= limit
                    if len(kept) > 2 * limit:  # not at every chunk: that would copy `limit` bytes for each
                        del kept[:-limit]
        except httpx.HTTPError as error:
            raise RayUnavailableError(f"{type(error).__name__}: {error}") from error
        return _decode_log(bytes(kept[-limit:]), whole=whole)

    async def _send(self, method: str, path: str, *, absent_ok: bool = False) -> Any:
        response = await self._request(method, path)
        if response.status_code == 404 and absent_ok:
            return None
        if response.status_code != 200:
            raise RayUnavailableError(f"{path} gave HTTP {response.status_code}")
        try:
            return response.json()
        except ValueError as error:
            raise RayUnavailableError(f"{path} gave no JSON") from error

    async def _request(self, method: str, path: str, json: Mapping[str, Any] | None = None) -> httpx.Response:
        try:
            response = await self._client.request(method, path, json=json)
        except httpx.HTTPError as error:
            raise RayUnavailableError(f"{type(error).__name__}: {error}") from error
        if response.status_code in {401, 403}:
            raise RayUnavailableError(
                f"HTTP {response.status_code}: Ray asks for its token; set RAY_AUTH_TOKEN as in the Ray container"
            )
        return response


def _job(submission_id: str, answer: Any) -> RayJob:
    status = answer.get("status") if isinstance(answer, dict) else None
    if status not in _STATUSES:
        raise RayUnavailableError(f"job {submission_id} has no known status")
    code, begun = answer.get("driver_exit_code"), answer.get("start_time")
    message = answer.get("message")
    return RayJob(
        submission_id,
        cast("RayStatus", status),
        message if isinstance(message, str) else "",
        code if isinstance(code, int) else None,
        begun / 1000 if isinstance(begun, int | float) else None,
    )


def _decode_log(body: bytes, *, whole: bool) -> str:
    """Text of `{"logs": "..."}`, of which only the end may be left; then from the first whole line of it on."""
    try:
        if whole:
            return str(json.loads(body)["logs"])
        # After an escaped line feed a token of the JSON string begins, so what follows is a string of its own.
        text = body[body.index(rb"\n") + 2 : body.rindex(b'"')]
        return str(json.loads(b'"' + text + b'"'))
    except (ValueError, KeyError, TypeError) as error:
        raise RayUnavailableError("the log is no JSON document") from error


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if len(line.strip()) > 1]
    return lines[-1][:300] if lines else ""
