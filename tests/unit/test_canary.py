"""I8: a secret given by reference appears nowhere, and one that is written down is neither used nor repeated."""

import json
import logging
from datetime import UTC, datetime
from typing import Any

import pytest

from harborrl_operator.reconcile import Reconciler
from support import hrl
from support.memory_cluster import MemoryCluster

CANARY = "canary-7f3a9c"
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


async def passes(spec: dict[str, Any], caplog: pytest.LogCaptureFixture, *, count: int = 3) -> MemoryCluster:
    """A cluster after a few passes over a job, its agent server ready and its preflight passed."""
    cluster = MemoryCluster(spec)
    cluster.put("Secret", "research", "keys", {"data": {"wandb": CANARY, "admin": CANARY}})
    with caplog.at_level(logging.DEBUG):
        for _ in range(count):
            await Reconciler(cluster, hrl.SETTINGS, lambda: NOW).reconcile("research", "quickstart")
            play_kubelet(cluster)
    return cluster


def play_kubelet(cluster: MemoryCluster) -> None:
    cluster.make_server_ready()
    if ("Pod", "research", "quickstart-preflight") in cluster.objects:
        state = {"terminated": {"exitCode": 0, "message": hrl.PASSED, "finishedAt": hrl.ago(5)}}
        ended = {"phase": "Succeeded", "containerStatuses": [{"name": "preflight", "image": "i", "state": state}]}
        cluster.put("Pod", "research", "quickstart-preflight", {"status": ended})


def places(cluster: MemoryCluster, caplog: pytest.LogCaptureFixture) -> list[str]:
    """Where the canary stands, the Secret and the job's own spec apart."""
    found = [f"event: {event}" for event in cluster.events if CANARY in json.dumps(event)]
    for (kind, _, name), thing in cluster.objects.items():
        looked_at = thing.get("status", {}) if kind == "HarborRLJob" else thing
        if kind != "Secret" and CANARY in json.dumps(looked_at):
            found.append(f"{kind}/{name}")
    return found + [f"log: {record.getMessage()}" for record in caplog.records if CANARY in record.getMessage()]


async def test_a_secret_by_reference_reaches_no_object_event_or_log(caplog: pytest.LogCaptureFixture) -> None:
    reference = {"secretKeyRef": {"name": "keys", "key": "wandb"}}
    changes = {
        "trainer.env": [{"name": "WANDB_API_KEY", "valueFrom": reference}],
        "agentServer.adminSecretRef": {"name": "keys", "key": "admin"},
    }
    cluster = await passes(hrl.merged(hrl.QUICKSTART_SPEC, changes), caplog)
    assert places(cluster, caplog) == []
    ray = json.dumps(cluster.objects["RayCluster", "research", "quickstart-a1"])
    server = json.dumps(cluster.server())
    # It is really handed over: as a reference, which the kubelet resolves.
    assert json.dumps({"name": "WANDB_API_KEY", "valueFrom": reference}) in ray
    assert '"secretKeyRef": {"name": "keys", "key": "admin"}' in server


WRITTEN_DOWN: list[tuple[str, dict[str, Any]]] = [
    ("a variable", {"trainer.env": [{"name": "HF_TOKEN", "value": CANARY}]}),
    ("a flag", {"trainer.extraArgs": f"--wandb-key {CANARY}"}),
    ("a flag with an equals sign", {"trainer.recipeArgs": f"--wandb-key={CANARY}"}),
    ("YAML", {"trainer.customConfigYaml": f"wandb_key: {CANARY}"}),
    ("an argument of the agent", {"agentServer.agentKwargs": {"apiKey": CANARY}}),
    ("YAML that does not parse", {"trainer.customConfigYaml": f"wandb_key: {CANARY}\n  x: y"}),
    ("YAML with a wrong tag", {"trainer.customConfigYaml": f"wandb_key: !!int {CANARY}"}),
    ("a flag with an open quote", {"trainer.extraArgs": f"--wandb-key '{CANARY}"}),
]


@pytest.mark.parametrize("changes", [case[1] for case in WRITTEN_DOWN], ids=[case[0] for case in WRITTEN_DOWN])
async def test_a_secret_that_is_written_down_is_refused_and_not_repeated(
    changes: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    cluster = await passes(hrl.merged(hrl.QUICKSTART_SPEC, changes), caplog)
    assert cluster.condition("Admitted")["status"] == "False"
    assert cluster.condition("Admitted")["reason"] in ("PlainSecret", "InvalidArguments")
    assert places(cluster, caplog) == []
