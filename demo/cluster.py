"""The cluster as kubectl sees it: one job, and files on its volumes."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass

from demo.shell import CommandError, Shell
from demo.story import Job

GONE = "NotFound"


@dataclass(frozen=True)
class Cluster:
    """kubectl in one namespace."""

    shell: Shell
    kubectl: str
    namespace: str

    def command(self, *arguments: str) -> list[str]:
        return [self.kubectl, "--namespace", self.namespace, *arguments]

    def make_namespace(self) -> None:
        """Does nothing when it is there."""
        manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}
        self.shell.read([self.kubectl, "apply", "--filename", "-"], stdin=json.dumps(manifest))

    def job(self, name: str) -> Job | None:
        """The HarborRLJob, or None when there is none of that name."""
        try:
            found: Job = json.loads(self.shell.read(self.command("get", "harborrljob", name, "--output", "json")))
        except CommandError as error:
            if GONE in error.output:
                return None
            raise
        return found

    def look(self, name: str, *, every: float) -> Iterator[Job]:
        """The job again and again, `every` seconds; ends when it is gone. Short API outages are waited out."""
        failures = 0
        while True:
            try:
                job = self.job(name)
                failures = 0
            except CommandError:
                failures += 1
                if failures * every > 120:
                    raise
            else:
                if job is None:
                    return
                yield job
            time.sleep(every)

    def script(self, claim: str, script: str, *, image: str) -> str:
        """What a shell script prints that runs on a claim (its working directory, read-only) in a pod of its own."""
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"generateName": "read-"},
            "spec": {
                "restartPolicy": "Never",
                "automountServiceAccountToken": False,
                "containers": [
                    {
                        "name": "read",
                        "image": image,
                        "imagePullPolicy": "IfNotPresent",
                        "command": ["/bin/sh", "-c", script],
                        "workingDir": "/volume",
                        "volumeMounts": [{"name": "volume", "mountPath": "/volume", "readOnly": True}],
                    }
                ],
                "volumes": [{"name": "volume", "persistentVolumeClaim": {"claimName": claim}}],
            },
        }
        name = self.shell.read(
            self.command("create", "--filename", "-", "--output", "name"), stdin=json.dumps(pod)
        ).strip()
        try:
            self.shell.read(
                self.command("wait", name, "--for", "jsonpath={.status.phase}=Succeeded", "--timeout", "60s")
            )
            return self.shell.read(self.command("logs", name))
        finally:
            self.shell.read(self.command("delete", name, "--wait=false"))
