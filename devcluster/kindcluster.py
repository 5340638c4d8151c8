"""kind, where a Docker engine answers. Not run by our tests: no machine of theirs has an engine."""

from devcluster.choice import KIND, claim_state, release_state
from devcluster.existing import ensure_kuberay, report_from
from devcluster.extras import Request, refuse
from devcluster.programs import ensure_clients, find_program
from devcluster.progress import Reporter
from devcluster.settings import Settings
from devcluster.shell import run
from devcluster.status import Report

NAME = "harborrl"


class KindCluster:
    """kind brings its own DNS, default StorageClass and NetworkPolicy enforcement; only KubeRay is added."""

    def __init__(self, settings: Settings, reporter: Reporter) -> None:
        self.settings = settings
        self.reporter = reporter

    @property
    def kubectl(self) -> str:
        return find_program("kubectl", self.settings) or "kubectl"

    def up(self, request: Request) -> None:
        refuse(request, "kind")
        ensure_clients(self.settings, self.reporter)
        claim_state(self.settings, KIND)
        if NAME not in run(["kind", "get", "clusters"]).split():
            with self.reporter.stage(f"Create kind cluster {NAME}"):
                run(["kind", "create", "cluster", "--name", NAME, "--wait", "180s"])
        run(["kind", "export", "kubeconfig", "--name", NAME, "--kubeconfig", self.settings.kubeconfig])
        ensure_kuberay(self.kubectl, self.settings, self.reporter)

    def down(self) -> None:
        run(["kind", "delete", "cluster", "--name", NAME])
        release_state(self.settings)

    def load(self, image: str) -> None:
        with self.reporter.stage(f"Load {image}"):
            run(["kind", "load", "docker-image", image, "--name", NAME])

    def status(self) -> Report:
        return report_from(self.kubectl, self.settings, f"kind {NAME}")
