import json
import tomllib
from pathlib import Path

import pytest
import yaml
from devcluster import components, kwok, nodeconfig
from devcluster.addons import coredns_manifest, kuberay_manifest, local_path_manifest
from devcluster.bringup import configuration_files
from devcluster.credentials import KUBECONFIGS, certificate_requests, kubeconfig
from devcluster.gobuild import Binaries
from devcluster.processes import Program
from devcluster.settings import DEFAULT_PORT_BASE, Ports, Settings, load_settings

SETTINGS = Settings(state=Path("/s"), cache=Path("/c"))
BINARIES = Binaries(Path("/b"))
PLANE = components.control_plane_of(SETTINGS)


def flags(program: Program) -> dict[str, str]:
    return dict(word.split("=", 1) for word in program.argv[1:] if "=" in word)


def test_containerd_keeps_everything_inside_the_state_folder() -> None:
    config = tomllib.loads(nodeconfig.containerd_toml(SETTINGS))
    cri = config["plugins"]["io.containerd.grpc.v1.cri"]
    paths = [config["root"], config["state"], config["grpc"]["address"], cri["cni"]["conf_dir"]]
    assert [path for path in paths if not path.startswith("/s/")] == []
    assert cri["netns_mounts_under_state_dir"]
    assert cri["restrict_oom_score_adj"]


def test_the_kubelet_keeps_every_pod_and_evicts_none() -> None:
    config = yaml.safe_load(nodeconfig.kubelet_config(SETTINGS))
    assert config["maxPods"] >= 110
    assert set(config["evictionHard"].values()) == {"0%"}
    assert config["imageGCHighThresholdPercent"] == 100
    assert not config["makeIPTablesUtilChains"]


def test_the_bridge_plugin_takes_the_mtu_and_writes_no_rules() -> None:
    (bridge,) = json.loads(nodeconfig.cni_conflist(SETTINGS, 1400))["plugins"]
    assert (bridge["mtu"], bridge["ipMasq"]) == (1400, False)
    assert bridge["ipam"]["dataDir"].startswith("/s/")


def test_pods_do_not_get_a_resolver_on_loopback() -> None:
    host = "search example\nnameserver 127.0.0.53\nnameserver 10.0.0.2\noptions edns0\n"
    assert nodeconfig.pod_resolv_conf(host) == "nameserver 10.0.0.2\n"


def test_every_configuration_file_lies_in_the_state_folder() -> None:
    assert {path.parts[:3] for path in configuration_files(SETTINGS, 1500, "")} == {("/", "s", "config")}


def test_the_api_server_has_the_aggregation_flags() -> None:
    """Without them one broken APIService stops the deletion of every namespace."""
    given = flags(components.apiserver(PLANE, BINARIES))
    assert given["--requestheader-client-ca-file"] == "/s/pki/front-proxy-ca.crt"
    assert {"--proxy-client-cert-file", "--proxy-client-key-file", "--requestheader-allowed-names"} <= set(given)


def test_every_certificate_that_a_program_is_given_is_asked_for() -> None:
    given = {
        Path(value)
        for program in (components.apiserver(PLANE, BINARIES), components.controller_manager(PLANE, BINARIES))
        for value in flags(program).values()
        if value.endswith((".crt", ".key"))
    }
    requested = {request["Name"] for request in certificate_requests("10.0.0.1", "10.1.0.1")}
    assert {path.stem for path in given} <= requested
    assert set(KUBECONFIGS.values()) <= requested


def test_without_nodes_there_are_no_kubelet_flags_and_no_node_ranges() -> None:
    bare = components.ControlPlane(
        directory=Path("/d"),
        address="127.0.0.1",
        port=1,
        controller_manager_port=2,
        services="10.0.0.0/24",
        pki=Path("/d/pki"),
        config=Path("/d/config"),
        run=Path("/d/run"),
        kubelet=False,
    )
    words = [*components.apiserver(bare, BINARIES).argv, *components.controller_manager(bare, BINARIES).argv]
    assert [word for word in words if "kubelet" in word or "cidr" in word] == []


def test_a_kubeconfig_refers_to_the_keys_and_holds_none() -> None:
    content = yaml.safe_load(kubeconfig("https://10.0.0.1:1", Path("/p"), "admin"))
    assert content["clusters"][0]["cluster"]["server"] == "https://10.0.0.1:1"
    assert content["users"][0]["user"] == {"client-certificate": "/p/admin.crt", "client-key": "/p/admin.key"}


def test_no_port_is_used_twice_or_can_be_an_outgoing_connection() -> None:
    ports = Ports()
    used = [*ports.purposes(), ports.registry]
    assert len(set(used)) == len(used)
    assert max(used) < 30000
    assert min(used) == DEFAULT_PORT_BASE


def test_coredns_without_an_upstream_does_not_forward() -> None:
    assert "forward . " in coredns_manifest(SETTINGS, has_upstream=True)
    assert "forward . " not in coredns_manifest(SETTINGS, has_upstream=False)


@pytest.mark.parametrize("manifest", [coredns_manifest(SETTINGS, has_upstream=True), local_path_manifest(SETTINGS)])
def test_our_manifests_name_only_images_that_the_node_has(manifest: str) -> None:
    images = [
        container["image"]
        for document in yaml.safe_load_all(manifest)
        if document["kind"] == "Deployment"
        for container in document["spec"]["template"]["spec"]["containers"]
    ]
    assert images
    assert [image for image in images if not image.startswith("localhost/devcluster/")] == []


def test_local_path_is_the_default_storage_class_and_shares_one_folder() -> None:
    documents = {document["kind"]: document for document in yaml.safe_load_all(local_path_manifest(SETTINGS))}
    annotations = documents["StorageClass"]["metadata"]["annotations"]
    assert annotations["storageclass.kubernetes.io/is-default-class"] == "true"
    config = json.loads(documents["ConfigMap"]["data"]["config.json"])
    assert config == {"sharedFileSystemPath": "/s/volumes"}
    assert '"$VOL_DIR"' in documents["ConfigMap"]["data"]["setup"]


def test_no_volume_is_made_or_removed_on_a_node_that_kwok_plays() -> None:
    """Its pods never touch a disk: each volume of a deleted claim stayed, until the disk was full."""
    documents = {document["kind"]: document for document in yaml.safe_load_all(local_path_manifest(SETTINGS))}
    helper = yaml.safe_load(documents["ConfigMap"]["data"]["helperPod.yaml"])
    wanted = helper["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (expression,) = wanted["nodeSelectorTerms"][0]["matchExpressions"]
    assert expression["operator"] == "DoesNotExist"
    assert all(expression["key"] in node["metadata"]["labels"] for node in kwok.nodes())


def test_kuberays_deployment_gets_our_image_and_its_other_objects_stay_as_they_are() -> None:
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "spec": {
            "template": {
                "spec": {"containers": [{"image": "x", "livenessProbe": {"a": 1}, "readinessProbe": {"a": 1}}]}
            }
        },
    }
    rendered = f"kind: CRD\nspec:   odd   \n---\n{yaml.safe_dump(deployment, sort_keys=False)}"
    first, second = kuberay_manifest(rendered).split("\n---\n")
    assert first == "kind: CRD\nspec:   odd   "
    pod = yaml.safe_load(second)["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"].startswith("localhost/devcluster/kuberay-operator:")
    assert pod["securityContext"]["runAsUser"] != 0


def test_settings_come_from_the_environment() -> None:
    given = load_settings(
        {"HOME": "/h", "HARBORRL_STATE": "/x", "HARBORRL_CACHE": "/y", "HARBORRL_PORT_BASE": "20000"}, is_root=True
    )
    assert (given.state, given.cache, given.ports.apiserver) == (Path("/x"), Path("/y"), 20000)


def test_settings_default_to_the_system_for_root_and_to_home_for_others() -> None:
    assert load_settings({"HOME": "/h"}, is_root=True).state == Path("/var/lib/harborrl-devcluster")
    assert load_settings({"HOME": "/h"}, is_root=False).state == Path("/h/.local/state/harborrl-devcluster")
    assert load_settings({"HOME": "/h", "XDG_CACHE_HOME": "/k"}, is_root=True).cache == Path("/k/harborrl")
