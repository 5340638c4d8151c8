"""Add-ons of the dev cluster: what is chosen, pinned and written."""

from pathlib import Path

import pytest
import yaml
from devcluster import kueue, kwok
from devcluster.addons import kuberay_image, kuberay_manifest
from devcluster.errors import UnsuitableHostError
from devcluster.existing import ExistingCluster
from devcluster.extras import Extras, Request, record, recorded, refuse
from devcluster.modules import KUBERAY_1_5, KUEUE, KWOK, Built, Module
from devcluster.settings import KUBERAY_VERSION


def test_an_addon_stays_until_it_is_removed(tmp_path: Path) -> None:
    assert recorded(tmp_path) == Extras()
    record(tmp_path, Request.parse(["kueue"], (), "1.5.1").on(recorded(tmp_path)))
    record(tmp_path, Request.parse(["kwok"], (), None).on(recorded(tmp_path)))
    assert recorded(tmp_path) == Extras(("kueue", "kwok"), "v1.5.1")
    assert Request.parse((), ["kueue"], "v1.6.2").on(recorded(tmp_path)) == Extras(("kwok",), "v1.6.2")


def test_a_plain_up_changes_nothing() -> None:
    chosen = Extras(("kwok",), "v1.5.1")
    assert Request().on(chosen) == chosen
    refuse(Request(), "kind")


@pytest.mark.parametrize(
    ("add", "remove", "kuberay", "named"),
    [(["volcano"], [], None, "volcano"), (["kueue"], ["kueue"], None, "kueue"), ([], [], "1.4.0", "v1.4.0")],
)
def test_what_there_is_not_is_refused_by_its_name(
    add: list[str], remove: list[str], kuberay: str | None, named: str
) -> None:
    with pytest.raises(UnsuitableHostError, match=named):
        Request.parse(add, remove, kuberay)


def test_a_cluster_of_the_users_gets_no_addon() -> None:
    with pytest.raises(UnsuitableHostError, match="context prod"):
        refuse(Request(add=("kueue",)), "context prod")
    assert ExistingCluster.up.__annotations__["request"] is Request


@pytest.mark.parametrize("module", [KUEUE, KWOK, KUBERAY_1_5], ids=lambda module: module.name)
def test_the_version_that_is_named_is_the_one_that_is_pinned(module: Module) -> None:
    pinned = (module.sources / "go.mod").read_text()
    assert f"{module.path} {module.version}" in [line.split(" //")[0].strip() for line in pinned.splitlines()]
    assert f"tool {module.target.package}\n" in pinned
    assert f"{module.path} {module.version} h1:" in (module.sources / "go.sum").read_text()


def test_kueue_looks_only_at_namespaces_that_say_so_and_manages_pods_and_deployments_there() -> None:
    config = yaml.safe_load(kueue.values()["managerConfig"]["controllerManagerConfigYaml"])
    assert config["manageJobsWithoutQueueName"] is True
    assert config["managedJobsNamespaceSelector"] == {"matchLabels": {kueue.NAMESPACE_LABEL: "true"}}
    assert {"ray.io/raycluster", "pod", "deployment"} == set(config["integrations"]["frameworks"])


def test_nothing_lands_on_a_fake_node_by_chance() -> None:
    for node in kwok.nodes():
        assert kwok.FAKE_TAINT in [taint["key"] for taint in node["spec"]["taints"]]
        assert node["status"]["allocatable"]["nvidia.com/gpu"] == "8"


def test_more_fake_nodes_have_the_product_than_a_job_of_four_needs_and_one_has_another() -> None:
    products = [node["metadata"]["labels"]["nvidia.com/gpu.product"] for node in kwok.nodes()]
    assert products.count("NVIDIA-H200") > 4
    assert set(products) > {"NVIDIA-H200"}


def test_kwok_is_configured_with_the_stages_of_its_own_tree(tmp_path: Path) -> None:
    (tmp_path / "stages.yaml").write_text("kind: Stage\nmetadata: {name: pod-ready}\n")
    documents = list(yaml.safe_load_all(kwok.manifests(Built(KWOK, tmp_path))))
    (config,) = (document for document in documents if document["kind"] == "ConfigMap")
    options, stage = yaml.safe_load_all(config["data"]["kwok.yaml"])
    assert options["options"]["manageAllNodes"] is False
    assert stage["kind"] == "Stage"
    (deployment,) = (document for document in documents if document["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == kwok.IMAGE
    assert "--node-ip=$(POD_IP)" in container["args"]


def test_each_version_of_kuberay_runs_its_own_image() -> None:
    deployment = {
        "kind": "Deployment",
        "spec": {"template": {"spec": {"containers": [{"livenessProbe": {}, "readinessProbe": {}}]}}},
    }
    rendered = f"kind: Namespace\n---\napiVersion: apps/v1\n{yaml.safe_dump(deployment)}"
    for version in ("v1.5.1", KUBERAY_VERSION):
        assert kuberay_image(version) in kuberay_manifest(rendered, version)
