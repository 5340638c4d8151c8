"""A namespace of the tests' own on the real cluster: the quickstart volume, its jobs, a pod that reads the volume."""

import io
import json
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import yaml

from support import hrl
from support.kube import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    DISRUPTION_BUDGETS,
    JOBS,
    NETWORK_POLICIES,
    PODS,
    RAY_CLUSTERS,
    REPLICA_SETS,
    SERVICES,
    Kube,
    Manifest,
    brief,
    condition,
    is_going,
    labels_of,
    name_of,
    status_of,
)
from support.kubectl import Kubectl

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "quickstart"
SANDBOXES = "harborrl-sandboxes"
MARK = {"harborrl.dev/tests": "cluster"}
"""Label of every namespace that the tests make."""
HELD = (PODS, SERVICES, CONFIG_MAPS, DEPLOYMENTS, REPLICA_SETS, RAY_CLUSTERS, NETWORK_POLICIES, DISRUPTION_BUDGETS)

_READER: Manifest = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "reader"},
    "spec": {
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 0,
        "containers": [
            {
                "name": "reader",
                "image": "localhost/harborrl/base:dev",
                "imagePullPolicy": "IfNotPresent",
                "command": ["sleep", "infinity"],
                "workingDir": "/volume",
                "volumeMounts": [
                    {"name": "volume", "mountPath": "/volume", "readOnly": True},
                    {"name": "volume", "mountPath": "/room"},
                ],
            }
        ],
        "volumes": [{"name": "volume", "persistentVolumeClaim": {"claimName": "quickstart"}}],
    },
}


@dataclass(frozen=True)
class Workspace:
    kube: Kube
    kubectl: Kubectl

    @classmethod
    def create(cls, kube: Kube, kubectl: Kubectl) -> "Workspace":
        name = f"hrl-e2e-{uuid4().hex[:6]}"
        kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": MARK}})
        return cls(kube, kubectl.within(name))

    @property
    def namespace(self) -> str:
        return self.kubectl.namespace

    def fill(self) -> None:
        """Model and tasks on the volume, as a user of the quickstart puts them there."""
        self.kubectl.ok("apply", "--filename", str(EXAMPLES / "volumes.yaml"))
        self.kubectl.ok("wait", "job/quickstart-data", "--for=condition=Complete", "--timeout=180s", timeout=190)
        self.kubectl.apply(_READER)
        self.kubectl.ok("wait", "pod/reader", "--for=condition=Ready", "--timeout=60s", timeout=70)

    def remove(self) -> None:
        self.kubectl.ok("delete", "namespace", self.namespace, "--timeout=180s", timeout=190)

    def apply(self, job: Manifest) -> None:
        self.kubectl.apply(job)

    def job(self, name: str) -> Manifest:
        found = self.kube.get(JOBS, name, self.namespace)
        assert found is not None, f"no HarborRLJob {name}"
        return found

    def until_job(self, name: str, true: Callable[[Manifest], bool], *, timeout: float) -> Manifest:
        """The job as soon as it has a status and `true` of it; fails at once when it has ended otherwise."""
        found: list[Manifest] = []

        def holds(items: list[Manifest]) -> bool:
            found[:] = [item for item in items if name_of(item) == name and status_of(item)]
            if any(map(true, found)):
                return True
            ended = [item for item in found if condition(item, "Finished")["status"] == "True"]
            assert not ended, f"{name} has ended: {brief(ended[0])}"
            return False

        self.kube.until(holds, JOBS, self.namespace, timeout=timeout)
        return found[0]

    def until_sandboxes_run(
        self, name: str, *, besides: frozenset[str] = frozenset(), timeout: float
    ) -> frozenset[str]:
        """Names of the sandboxes of the job's trials once one runs that is not in `besides`."""

        def running(items: list[Manifest]) -> list[str]:
            mine = [pod for pod in items if not is_going(pod) and status_of(pod).get("phase") == "Running"]
            return [name_of(pod) for pod in mine if name_of(pod) not in besides]

        # Others with the role are no trial's: they try whether the cluster enforces policies, say.
        selector = f"{self._in_sandboxes(name)},harborrl.dev/role=sandbox,harborrl.dev/trial"
        pods = self.kube.until(lambda items: bool(running(items)), PODS, SANDBOXES, selector=selector, timeout=timeout)
        return frozenset(map(name_of, pods))

    def trainer_pods(self, name: str, node_type: str, *, timeout: float) -> list[Manifest]:
        """The job's `head` or `worker` pods that are not going, as soon as there is one."""
        selector = f"harborrl.dev/job={name},ray.io/node-type={node_type}"

        def stay(items: list[Manifest]) -> list[Manifest]:
            return [pod for pod in items if not is_going(pod)]

        return stay(
            self.kube.until(lambda items: bool(stay(items)), PODS, self.namespace, selector=selector, timeout=timeout)
        )

    def delete(self, name: str) -> None:
        self.kubectl.ok("delete", "hrl", name, "--ignore-not-found")

    def held(self, name: str) -> list[str]:
        """What exists of a job in its own and in the sandbox namespace: by label, and by name where others label."""
        mine = [
            f"{kind[1]} {name_of(item)}"
            for kind in HELD
            for item in self.kube.objects(kind, self.namespace)
            if labels_of(item).get("harborrl.dev/job") == name or name_of(item).startswith(f"{name}-")
        ]
        selector = self._in_sandboxes(name)
        there = [f"{kind[1]} {name_of(item)}" for kind in HELD for item in self.kube.objects(kind, SANDBOXES, selector)]
        return [thing for thing in mine + there if not thing.startswith("Pod quickstart-data-")]

    def until_held(self, true: Callable[[list[str]], bool], name: str, *, timeout: float) -> list[str]:
        """What is held as soon as `true` of it. Woken by pods, which are the last to go."""
        left: list[str] = []

        def holds(_pods: list[Manifest]) -> bool:
            left[:] = self.held(name)
            return true(left)

        try:
            self.kube.until(holds, PODS, selector=f"harborrl.dev/job={name}", timeout=timeout)
        except AssertionError as error:
            raise AssertionError(f"{name} holds {left}") from error
        return left

    def until_swept(self, name: str, *, timeout: float) -> None:
        """Until no anchor of the job is left in the sandbox namespace."""
        selector = self._in_sandboxes(name)
        self.kube.until(lambda anchors: not anchors, CONFIG_MAPS, SANDBOXES, selector=selector, timeout=timeout)

    def _in_sandboxes(self, name: str) -> str:
        return f"harborrl.dev/job={name},harborrl.dev/job-namespace={self.namespace}"

    def make_room(self) -> None:
        """Drop the checkpoints of runs whose job is gone; they outlast it on purpose, half a gigabyte each."""
        kept = " ".join(str(status_of(job).get("runPath", "-")) for job in self.kube.objects(JOBS, self.namespace))
        script = (
            f'cd /room/checkpoints && for r in {self.namespace}/*; do [[ " {kept} " = *" $r "* ]] || rm -rf "$r"; done'
        )
        self.kubectl.ok("exec", "reader", "--", "bash", "-c", f"[ ! -d /room/checkpoints ] || {{ {script}; }}")

    def read(self, script: str) -> str:
        """What a shell script prints in the root of the volume."""
        return self.kubectl.ok("exec", "reader", "--", "sh", "-c", script)

    def files(self, folder: str, *patterns: str) -> dict[str, bytes]:
        """Path below `folder` -> content of the files whose path matches one of the shell patterns."""
        wanted = " -o ".join(f"-path '{pattern}'" for pattern in patterns)
        script = f"cd {folder} && find . -type f \\( {wanted} \\) -print0 | tar --create --null --files-from -"
        with tarfile.open(fileobj=io.BytesIO(self.kubectl.raw("exec", "reader", "--", "sh", "-c", script))) as tar:
            return {
                member.name.removeprefix("./"): content.read()
                for member in tar
                if (content := tar.extractfile(member)) is not None
            }


def example(path: str, changes: dict[str, Any] | None = None, *, name: str | None = None) -> Manifest:
    """A manifest of examples/quickstart with `changes` at dotted paths of its spec."""
    manifest: Manifest = yaml.safe_load((EXAMPLES / path).read_text())
    if name is not None:
        manifest["metadata"]["name"] = name
    return manifest | {"spec": hrl.merged(manifest["spec"], changes or {})}


def trained(job: Manifest) -> int:
    """Rollouts trained so far."""
    count: int = (status_of(job).get("rollout") or {}).get("trained", 0)
    return count


def json_lines(content: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in content.splitlines()]
