"""kind, where a Docker engine answers. Not run by our tests: no machine of theirs has an engine."""

from devcluster.existing import ensure_kuberay, find_kubectl, report_from
from devcluster.extras import Request, refuse
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

    def up(self, request: Request) -> None:
        refuse(request, "kind")
        self.settings.state.mkdir(parents=True, exist_ok=True)
        if NAME not in run(["kind", "get", "clusters"]).split():
            with self.reporter.stage(f"Create kind cluster {NAME}"):
                run(["kind", "create", "cluster", "--name", NAME, "--wait", "180s"])
        run(["kind", "export", "kubeconfig", "--name", NAME, "--kubeconfig", self.settings.kubeconfig])
        ensure_kuberay(find_kubectl(self.settings), self.settings, self.reporter)

    def down(self) -> None:
        run(["kind", "delete", "cluster", "--name", NAME])
        for name in ("kubeconfig", "backend"):
            (self.settings.state / name).unlink(missing_ok=True)

    def load(self, image: str) -> None:
        with self.reporter.stage(f"Load {image}"):
            run(["kind", "load", "docker-image", image, "--name", NAME])

    def status(self) -> Report:
        return report_from(find_kubectl(self.settings), self.settings, f"kind {NAME}")
