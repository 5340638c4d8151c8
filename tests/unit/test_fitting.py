"""A RayCluster is held against the installed KubeRay before it is sent; Kueue is heard where it is served."""

import json
from typing import Any, override

import pytest

from harborrl_operator.cluster import Cluster
from harborrl_operator.errors import ClusterError, UnsupportedFieldError
from harborrl_operator.faults import with_failures
from harborrl_operator.fitting import fit_ray_cluster
from harborrl_operator.observe import observe
from harborrl_operator.resolve import resolve
from harborrl_operator.resources.ray_cluster import ray_cluster
from support import golden, hrl, kueue, reached


class Installed(Cluster):
    """A cluster whose CRD of RayClusters is `crd`, None where there is none, or an error."""

    def __init__(self, crd: dict[str, Any] | ClusterError | None) -> None:
        self.crd = crd

    @override
    async def get(self, kind: str, namespace: str | None, name: str) -> dict[str, Any] | None:
        assert (kind, namespace, name) == ("CustomResourceDefinition", None, "rayclusters.ray.io")
        if isinstance(self.crd, ClusterError):
            raise self.crd
        return self.crd


def crd(version: str = "1.5.1") -> dict[str, Any]:
    schema = json.loads((golden.DATA / "kuberay" / f"rayclusters-v{version}.json").read_text())
    return {"spec": {"versions": [{"name": "v1", "served": True, "schema": {"openAPIV3Schema": schema}}]}}


def manifest(changes: dict[str, Any] | None = None) -> dict[str, Any]:
    return ray_cluster(resolve(hrl.job(changes), hrl.SETTINGS), 1, {})


async def test_what_the_installed_kuberay_knows_is_sent_as_it_is() -> None:
    fitted, omitted = await fit_ray_cluster(Installed(crd()), manifest())
    assert (fitted, omitted) == (manifest(), [])


async def test_what_could_be_left_out_is_recorded_as_an_adjustment() -> None:
    old = crd()
    spec = old["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    head = spec["properties"]["headGroupSpec"]["properties"]["template"]["properties"]["spec"]["properties"]
    del head["enableServiceLinks"]
    fitted, (omitted,) = await fit_ray_cluster(Installed(old), manifest())
    assert omitted.field == "RayCluster spec.headGroupSpec.template.spec.enableServiceLinks"
    assert "enableServiceLinks" not in fitted["spec"]["headGroupSpec"]["template"]["spec"]


async def test_a_field_that_the_job_needs_is_refused_by_its_path_with_what_to_do() -> None:
    sent = manifest({"trainer.podOverrides": {"resourceClaimz": []}})
    with pytest.raises(
        UnsupportedFieldError, match=r"template\.spec\.resourceClaimz.*Update KubeRay's CRDs"
    ) as refused:
        await fit_ray_cluster(Installed(crd()), sent)
    job = hrl.job()
    status = with_failures(job.status, hrl.decide(job, hrl.world()).status, [refused.value], hrl.NOW)
    reached.note_status(status)
    (trainer,) = (one for one in status.conditions if one.type == "TrainerReady")
    assert (trainer.status, trainer.reason) == ("False", "UnknownToKubeRay")
    assert status.reason == "UnknownToKubeRay"


@pytest.mark.parametrize("seen", [None, ClusterError("get CustomResourceDefinition", 403, "forbidden")])
async def test_without_a_look_at_the_crd_the_api_servers_strictness_decides(seen: ClusterError | None) -> None:
    assert await fit_ray_cluster(Installed(seen), manifest()) == (manifest(), [])


async def test_an_api_server_that_is_away_is_no_answer() -> None:
    with pytest.raises(ClusterError):
        await fit_ray_cluster(Installed(ClusterError("get CustomResourceDefinition", 0, "away")), manifest())


class WithKueue(Cluster):
    """One RayCluster that may be suspended, and Workloads of the kinds that are served."""

    def __init__(self, served: tuple[str, ...], *, suspended: bool = True, queue: str = "", status: int = 404) -> None:
        self.served, self.suspended, self.asked = served, suspended, list[str]()
        self.queue, self.status = queue, status

    @override
    async def get(self, kind: str, namespace: str | None, name: str) -> dict[str, Any] | None:
        return None

    @override
    async def find(
        self, kind: str, namespace: str | None, selector: str = "", fields: str = ""
    ) -> list[dict[str, Any]]:
        self.asked.append(kind)
        if kind == "RayCluster":
            cluster = hrl.ray_cluster(hrl.job(), suspend=self.suspended)
            cluster["metadata"]["labels"] = {"harborrl.dev/job-uid": hrl.UID}
            if self.queue:
                cluster["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = self.queue
            return [cluster]
        if not kind.startswith("Workload"):
            return []
        if kind not in self.served:
            raise ClusterError("list Workload", self.status, "not served")
        assert selector == "kueue.x-k8s.io/job-uid in (rc-1)"
        found = kueue.workload(kueue.waiting())
        found["metadata"]["labels"] = {"kueue.x-k8s.io/job-uid": "rc-1"}
        return [found]


@pytest.mark.parametrize("served", [("Workload",), ("Workload.v1beta1",)])
async def test_the_workload_of_a_suspended_cluster_is_read_in_the_version_that_is_served(
    served: tuple[str, ...],
) -> None:
    seen = await observe(WithKueue(served), hrl.job(), hrl.SETTINGS, hrl.NOW)
    assert list(seen.workloads) == ["rc-1"]
    assert seen.workload_of(seen.ray_clusters["quickstart-a1"]) == seen.workloads["rc-1"]


async def test_without_kueue_a_suspended_cluster_is_observed_all_the_same() -> None:
    seen = await observe(WithKueue(()), hrl.job(), hrl.SETTINGS, hrl.NOW)
    assert (list(seen.ray_clusters), seen.workloads) == (["quickstart-a1"], {})


async def test_nobody_asks_for_workloads_while_nothing_is_held_back() -> None:
    cluster = WithKueue(("Workload",), suspended=False)
    await observe(cluster, hrl.job(), hrl.SETTINGS, hrl.NOW)
    assert not [kind for kind in cluster.asked if kind.startswith("Workload")]


@pytest.mark.parametrize(
    ("served", "status", "answer"),
    [
        ((), 404, "absent"),
        ((), 403, "unreadable"),
        (("Workload",), 404, "served"),
        (("Workload.v1beta1",), 403, "served"),
    ],
)
async def test_a_cluster_of_a_queue_that_nothing_suspended_has_its_workload_looked_for(
    served: tuple[str, ...], status: int, answer: str
) -> None:
    cluster = WithKueue(served, suspended=False, queue="h200", status=status)
    assert (await observe(cluster, hrl.job(), hrl.SETTINGS, hrl.NOW)).kueue == answer
