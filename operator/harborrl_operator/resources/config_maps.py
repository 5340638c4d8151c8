"""The job document, and the empty map into which the supervisor writes progress."""

import json
from typing import Any

from harborrl_operator.models import HarborRLJob
from harborrl_operator.resolve import ResolvedJob
from harborrl_operator.resources.common import metadata


def job_config(job: ResolvedJob, attempt: int) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(job.job, job.job.names.config),
        "data": {"job.json": json.dumps(job.document(attempt), indent=1)},
    }


def stop_request(job: HarborRLJob, request_id: str, attempt: int, incarnation: int) -> dict[str, Any]:
    """Asks the supervisor of one incarnation to let its driver save and stop (docs/contracts.md, "Requests")."""
    stop = {"attempt": attempt, "incarnation": incarnation}
    request = {"schemaVersion": 1, "uid": job.uid, "id": request_id, "stop": stop}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(job, job.names.request),
        "data": {"request": json.dumps(request)},
    }


def progress(job: HarborRLJob) -> dict[str, Any]:
    """No `data`: what the supervisor wrote is its own, and applying this again leaves it alone."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(job, job.names.progress)}
