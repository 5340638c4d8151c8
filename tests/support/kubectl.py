"""kubectl as a user types it."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from support.kube import Manifest

SYSTEM = "harborrl-system"
OPERATOR = "deployment/harborrl-operator"


@dataclass(frozen=True)
class Kubectl:
    program: str
    kubeconfig: str
    namespace: str = "default"

    def within(self, namespace: str) -> "Kubectl":
        return replace(self, namespace=namespace)

    def __call__(
        self, *arguments: str, stdin: str | None = None, timeout: float = 60
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(  # noqa: S603 - a list, no shell
            self._command(*arguments), input=stdin, capture_output=True, text=True, check=False, timeout=timeout
        )

    def ok(self, *arguments: str, stdin: str | None = None, timeout: float = 60) -> str:
        """Standard output; fails with standard error."""
        done = self(*arguments, stdin=stdin, timeout=timeout)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    def raw(self, *arguments: str, timeout: float = 60) -> bytes:
        done = subprocess.run(self._command(*arguments), capture_output=True, check=False, timeout=timeout)  # noqa: S603 - a list, no shell
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr.decode()}"
        return done.stdout

    def apply(self, *manifests: Manifest) -> None:
        listed = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
        self.ok("apply", "--filename", "-", stdin=json.dumps(listed))

    @contextmanager
    def forwarded(self, pod: str, port: int) -> Iterator[str]:
        """The address on this machine under which a pod's port answers."""
        command = self._command("port-forward", f"pod/{pod}", f":{port}", "--address=127.0.0.1")
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as forward:  # noqa: S603 - a list, no shell
            try:
                assert forward.stdout is not None
                assert forward.stderr is not None
                # It says that it forwards from HOST:PORT to the pod.
                told = forward.stdout.readline().split()
                assert told, f"kubectl port-forward {pod}: {forward.stderr.read()}"
                yield f"http://{told[2]}"
            finally:
                forward.terminate()

    def _command(self, *arguments: str) -> list[str]:
        return [self.program, "--kubeconfig", self.kubeconfig, "--namespace", self.namespace, *arguments]


@contextmanager
def operator_scaled_to_zero(kubectl: Kubectl) -> Iterator[None]:
    """No operator within; leader and spare again, and ready, afterwards."""
    system = kubectl.within(SYSTEM)
    system.ok("scale", OPERATOR, "--replicas=0")
    try:
        system.ok(
            "wait", "pod", "--selector=app.kubernetes.io/name=harborrl", "--for=delete", "--timeout=60s", timeout=70
        )
        yield
    finally:
        operator_running(kubectl)


def operator_running(kubectl: Kubectl) -> None:
    """Leader and spare, ready; heals what a killed test run left."""
    system = kubectl.within(SYSTEM)
    system.ok("scale", OPERATOR, "--replicas=2")
    system.ok("rollout", "status", OPERATOR, "--timeout=120s", timeout=130)
