"""Stable names: the agent server for the trainer, the trainer's session servers and router for the agents."""

from typing import Any

from harborrl_operator.constants import AGENT_PORT, LABEL_AGENT_VERSION, LABEL_ATTEMPT, LABEL_JOB_UID, LABEL_ROLE, Role
from harborrl_operator.resolve import ResolvedJob
from harborrl_operator.resources.common import metadata


def agent_server(job: ResolvedJob, version: str) -> list[dict[str, Any]]:
    """The Service for `/run`, of one version, and a headless one so that a flush also reaches a draining predecessor.

    An empty version is that of a Deployment that was made before versions ran side by side.
    """
    selector = {LABEL_JOB_UID: job.job.uid, LABEL_ROLE: Role.AGENT_SERVER.value}
    chosen = {LABEL_AGENT_VERSION: version} if version else {}
    ports = [_port("http", AGENT_PORT)]
    names = job.job.names
    return [
        _service(job, names.agent, Role.AGENT_SERVER, {"selector": selector | chosen, "ports": ports}),
        _service(
            job,
            names.agents,
            Role.AGENT_SERVER,
            {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": selector, "ports": ports},
        ),
    ]


def trainer(job: ResolvedJob, attempt: int) -> dict[str, Any]:
    """Selects the head of the current attempt, also while it is not ready: Ray's readiness says nothing about ours."""
    ports = job.spec.trainer.ports
    sessions = [_port(f"session-{index}", ports.session + index) for index in range(ports.session_count)]
    return _service(
        job,
        job.job.names.trainer,
        Role.TRAINER,
        {
            "publishNotReadyAddresses": True,
            "selector": {
                LABEL_JOB_UID: job.job.uid,
                LABEL_ROLE: Role.TRAINER.value,
                LABEL_ATTEMPT: str(attempt),
                "ray.io/node-type": "head",
            },
            "ports": [*sessions, _port("router", ports.router)],
        },
    )


def _service(job: ResolvedJob, name: str, role: Role, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata(job.job, name, role), "spec": spec}


def _port(name: str, port: int) -> dict[str, Any]:
    return {"name": name, "port": port, "targetPort": port, "protocol": "TCP"}
