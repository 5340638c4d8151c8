"""Where GPU pods go and how they speak, by the shape of the job."""

from typing import Any

import pytest

from harborrl_operator.models import HarborRLJob
from harborrl_operator.resolve import resolve
from harborrl_operator.resources import rbac
from harborrl_operator.resources.preflight import pod as preflight_pod
from harborrl_operator.resources.ray_cluster import ray_cluster
from support import hrl

GANG = {"trainer.nodes": 2, "queueName": "h200"}


def gpus(changes: dict[str, Any] | None = None) -> HarborRLJob:
    return hrl.job(changes, base=hrl.MINIMAL_SPEC)


def cluster(job: HarborRLJob, claims: dict[str, Any] | None = None) -> dict[str, Any]:
    spec: dict[str, Any] = ray_cluster(resolve(job, hrl.SETTINGS), 1, claims or {})["spec"]
    return spec


def templates(job: HarborRLJob, claims: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    spec = cluster(job, claims)
    return [group["template"] for group in (spec["headGroupSpec"], *spec.get("workerGroupSpecs", []))]


def pods(job: HarborRLJob, claims: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    return [template["spec"] for template in templates(job, claims)]


def variables(pod: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one.get("value", "") for one in pod["containers"][0]["env"]}


def shared_memory(job: HarborRLJob) -> str:
    (volume,) = (volume for volume in pods(job)[0]["volumes"] if volume["name"] == "shm")
    size: str = volume["emptyDir"]["sizeLimit"]
    return size


def kueues(template: dict[str, Any]) -> dict[str, str]:
    """Kueue's annotations, by their names."""
    pairs = ([*name.rsplit("/", 1), value] for name, value in template["metadata"]["annotations"].items())
    return {name: value for owner, name, value in pairs if owner == "kueue.x-k8s.io"}


class TestPlacement:
    def test_pods_with_gpus_bear_the_taint_of_gpu_nodes_and_pods_without_do_not(self) -> None:
        assert [one["key"] for one in pods(gpus())[0]["tolerations"]] == ["nvidia.com/gpu"]
        assert "tolerations" not in pods(hrl.job())[0]

    def test_head_and_workers_are_placed_alike(self) -> None:
        changes = {**GANG, "trainer.gpuProduct": "NVIDIA-H200", "trainer.priorityClassName": "p"}
        head, worker = pods(gpus(changes))
        for field in ("nodeSelector", "tolerations", "priorityClassName", "serviceAccountName"):
            assert head[field] == worker[field]
        for pod in (head, worker):
            assert pod["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": 8}

    def test_a_selector_of_the_users_joins_the_product(self) -> None:
        changes = {"trainer.gpuProduct": "NVIDIA-H200", "trainer.nodeSelector": {"pool": "rl"}}
        assert pods(gpus(changes))[0]["nodeSelector"] == {"pool": "rl", "nvidia.com/gpu.product": "NVIDIA-H200"}

    def test_overrides_have_the_last_word(self) -> None:
        changes = {"trainer.nodeSelector": {"a": "b"}, "trainer.podOverrides": {"nodeSelector": {"a": "c"}}}
        assert pods(gpus(changes))[0]["nodeSelector"] == {"a": "c"}

    def test_a_preflight_bears_what_the_user_named_and_needs_no_gpu_node(self) -> None:
        taint = {"key": "dedicated", "value": "rl", "effect": "NoSchedule"}
        job = resolve(gpus({"trainer.tolerations": [taint], "trainer.gpuProduct": "NVIDIA-H200"}), hrl.SETTINGS)
        spec = preflight_pod(job, 1, {})["spec"]
        assert taint in spec["tolerations"]
        assert "nodeSelector" not in spec
        preferred = spec["affinity"]["nodeAffinity"].keys()
        assert preferred == {"preferredDuringSchedulingIgnoredDuringExecution"}


class TestTopology:
    def test_in_a_queue_it_is_kueues_with_head_and_workers_in_one_group(self) -> None:
        for template in templates(gpus({**GANG, "trainer.topology": {"required": "rack"}})):
            assert kueues(template) == {"podset-required-topology": "rack", "podset-group-name": "trainer"}
            assert "affinity" not in template["spec"]

    def test_a_single_pod_is_in_no_group(self) -> None:
        (head,) = templates(gpus({"queueName": "h200", "trainer.topology": {"preferred": "rack"}}))
        assert kueues(head) == {"podset-preferred-topology": "rack"}

    def test_without_a_queue_it_is_an_affinity_beside_that_of_claims(self) -> None:
        job = gpus({"trainer.topology": {"required": "rack"}})
        (pod,) = pods(job, {"harborrl-data": hrl.claim(mode="ReadWriteOnce")})
        terms = pod["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert [term["topologyKey"] for term in terms] == ["kubernetes.io/hostname", "rack"]
        wish = pods(gpus({"trainer.topology": {"preferred": "rack"}}))[0]["affinity"]["podAffinity"]
        assert list(wish) == ["preferredDuringSchedulingIgnoredDuringExecution"]


class TestInterconnect:
    @pytest.mark.parametrize(
        ("changes", "set_to"),
        [
            ({}, {"NCCL_IB_DISABLE": None, "NCCL_SOCKET_IFNAME": None}),
            (GANG, {"NCCL_IB_DISABLE": "1", "NCCL_SOCKET_IFNAME": "eth0", "GLOO_SOCKET_IFNAME": "eth0"}),
            ({**GANG, "trainer.rdma": {}}, {"NCCL_IB_DISABLE": "0", "NCCL_IB_HCA": "mlx5", "NCCL_IB_GID_INDEX": None}),
            (
                {**GANG, "trainer.rdma": {}, "trainer.nccl": {"preset": "roce", "gidIndex": 1, "hca": "=mlx5_0"}},
                {"NCCL_IB_GID_INDEX": "1", "NCCL_IB_HCA": "=mlx5_0"},
            ),
            ({**GANG, "trainer.nccl": {"preset": "none"}}, {"NCCL_IB_DISABLE": None}),
        ],
        ids=["one node", "several nodes", "rdma", "roce", "none"],
    )
    def test_the_environment_follows_the_shape(self, changes: dict[str, Any], set_to: dict[str, str | None]) -> None:
        for pod in pods(gpus(changes)):
            assert {name: variables(pod).get(name) for name in set_to} == set_to

    def test_a_variable_of_the_users_is_the_users(self) -> None:
        env = [{"name": "NCCL_SOCKET_IFNAME", "value": "bond0"}]
        head = pods(gpus({**GANG, "trainer.env": env}))[0]
        assert [one["value"] for one in head["containers"][0]["env"] if one["name"] == "NCCL_SOCKET_IFNAME"] == [
            "bond0"
        ]

    def test_rdma_is_asked_for_in_the_ray_containers_alone(self) -> None:
        rdma = {"resource": "rdma/ib", "count": 8, "networks": "ib0"}
        for template in templates(gpus({**GANG, "trainer.rdma": rdma})):
            (ray,), others = template["spec"]["containers"], template["spec"].get("initContainers", [])
            assert ray["resources"]["limits"] == {"nvidia.com/gpu": 8, "rdma/ib": 8}
            assert ray["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["IPC_LOCK"]}
            assert template["metadata"]["annotations"]["k8s.v1.cni.cncf.io/networks"] == "ib0"
            for other in others:
                assert "add" not in other["securityContext"]["capabilities"]

    def test_memory_is_locked_only_where_it_is_wanted(self) -> None:
        (pod,) = pods(gpus({"trainer.rdma": {"lockMemory": False}}))
        assert pod["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}


class TestMemoryAndAccount:
    def test_shared_memory_is_the_users_size_else_the_limit_else_by_gpus(self) -> None:
        limit = {"trainer.resources": {"limits": {"memory": "900Gi"}}}
        assert shared_memory(gpus({**limit, "trainer.sharedMemory": "200Gi"})) == "200Gi"
        assert shared_memory(gpus(limit)) == "900Gi"
        assert shared_memory(gpus()) == "64Gi"
        assert shared_memory(hrl.job()) == "1Gi"

    def test_an_account_of_the_users_is_bound_and_neither_made_nor_changed(self) -> None:
        job = resolve(gpus({"trainer.serviceAccountName": "with-bucket"}), hrl.SETTINGS)
        made = [(thing["kind"], thing["metadata"]["name"]) for thing in rbac.accounts_and_bindings(job)]
        assert ("RoleBinding", "harborrl-trainer-with-bucket") in made
        assert ("ServiceAccount", "with-bucket") not in made
        assert ("ServiceAccount", "harborrl-trainer") not in made
        (binding,) = (thing for thing in rbac.accounts_and_bindings(job) if "with-bucket" in thing["metadata"]["name"])
        assert binding["subjects"][0]["name"] == "with-bucket"
        assert preflight_pod(job, 1, {})["spec"]["serviceAccountName"] == "with-bucket"
