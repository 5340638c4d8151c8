"""Records what an operator of another commit leaves of a running job, for tests/unit/test_upgrade.py.

    git worktree add ../before COMMIT
    PYTHONPATH=../before/operator:tests python -m support.record_upgrade ../before COMMIT

Uses of the operator no more than `Reconciler`, `Settings` and its client's methods, which every commit has.
"""

import asyncio
import json
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import yaml

from harborrl_operator.models import Settings
from harborrl_operator.reconcile import Reconciler
from support.small_server import SmallServer, Thing, stored

DATA = Path(__file__).resolve().parents[1] / "data" / "upgrade"
NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
AT = "2026-01-01T11:59:50Z"
NAMESPACE, NAME, UID = "research", "quickstart", "5f0c2a9e-8a1d-4a53-9a36-0b6f1f8e7d10"
PASSED = {"schemaVersion": 1, "ok": True, "findings": []}
NODES = 2
SPEC: Thing = {
    "model": {"path": "SmolLM2-135M-Instruct"},
    "data": {"tasks": {}},
    "trainer": {
        "engine": "native",
        "nodes": NODES,
        "allowPartialStart": True,
        "config": {"numRollout": 3, "rolloutBatchSize": 2, "nSamplesPerPrompt": 4, "globalBatchSize": 8},
    },
    "agentServer": {"agentKwargs": {"maxTurns": 3}},
}


class Walk:
    """From a submitted job to a running driver; kubelet, KubeRay and supervisor are played."""

    def __init__(self, crd: Thing) -> None:
        self.server = SmallServer(crd, AT)
        self.reconciler = Reconciler(cast("Any", self.server), Settings(), lambda: NOW)
        labels = {"harborrl.dev/sandboxes": "true"}
        self.put("Namespace", "harborrl-sandboxes", metadata={"name": "harborrl-sandboxes", "labels": labels})
        self.put("PersistentVolumeClaim", "harborrl-data", spec={"accessModes": ["ReadWriteMany"]})
        meta = {"name": NAME, "namespace": NAMESPACE, "uid": UID}
        self.put("HarborRLJob", NAME, metadata=meta, spec=stored_spec(crd), status={})

    def put(self, kind: str, name: str, **parts: Any) -> None:
        self.server.put({"kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}, **parts})

    async def passes(self) -> None:
        for _ in range(3):
            await self.reconciler.reconcile(NAMESPACE, NAME)

    async def walk(self) -> None:
        await self.passes()
        (deployment,) = await self.server.find("Deployment", NAMESPACE)
        ready = {"observedGeneration": 1, "replicas": 1, "readyReplicas": 1}
        self.put("Deployment", deployment["metadata"]["name"], status=ready)
        await self.passes()
        ended = {"terminated": {"exitCode": 0, "message": json.dumps(PASSED), "finishedAt": AT}}
        container = {"name": "preflight", "image": "trainer", "state": ended}
        self.put("Pod", f"{NAME}-preflight", status={"phase": "Succeeded", "containerStatuses": [container]})
        await self.passes()
        self._start_trainer()
        await self.passes()

    def _start_trainer(self) -> None:
        (cluster,) = [thing for key, thing in self.server.objects.items() if key[0] == "RayCluster"]
        ours = {k: v for k, v in cluster["metadata"]["labels"].items() if k.startswith("harborrl.dev/")}
        ready = [{"type": "Ready", "status": "True", "lastTransitionTime": AT}]
        for place in range(NODES):
            role = "head" if place == 0 else "worker"
            labels = ours | {"harborrl.dev/role": "trainer", "harborrl.dev/attempt": "1", "ray.io/node-type": role}
            name = f"{NAME}-a1-{role}"
            meta = {"name": name, "namespace": NAMESPACE, "labels": labels}
            status = {"phase": "Running", "conditions": ready}
            self.put("Pod", name, metadata=meta, spec={"nodeName": "node-1"}, status=status)
        driver = {"submissionId": f"{NAME}-a1-i1", "state": "RUNNING", "message": "", "failureClass": None}
        report = {
            "schemaVersion": 1,
            "uid": UID,
            "attempt": 1,
            "incarnation": 1,
            "sequence": 7,
            "driver": driver | {"cause": None, "startedAt": AT},
            "rollout": {"collected": 2, "trained": 1, "total": 3, "rewardMean": 0.375},
            "checkpoint": None,
            "observedAt": AT,
        }
        self.put("ConfigMap", f"{NAME}-progress", data={"progress": json.dumps(report)})


def stored_spec(crd: Thing) -> Thing:
    """With the defaults that are written when a job is created."""
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return dict(stored(SPEC, schema))


def main(before: Path, commit: str) -> None:
    crd = before / "crds" / "harborrljobs.yaml"
    walk = Walk(yaml.safe_load(crd.read_text()))
    asyncio.run(walk.walk())
    (job,) = [thing for key, thing in walk.server.objects.items() if key[0] == "HarborRLJob"]
    assert job["status"]["phase"] == "Running", job["status"]
    folder = DATA / commit
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(crd, folder / "crd.yaml")
    things = [thing for key, thing in sorted(walk.server.objects.items()) if key[0] != "Event"]
    (folder / "objects.json").write_text(json.dumps(things, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
