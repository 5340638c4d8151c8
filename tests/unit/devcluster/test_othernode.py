from dataclasses import replace
from pathlib import Path

import pytest
from devcluster.errors import UnsuitableHostError
from devcluster.othernode import Machine, other_node, refuse_other_node
from devcluster.settings import Settings

PLAIN = "*filter\n:INPUT ACCEPT [0:0]\n:DOCKER - [0:0]\n:KUBE-STRANGER - [0:0]\nCOMMIT\n"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine with one process, this one, and no trace of Kubernetes."""
    process(tmp_path, "self", "python", network="net:[1]")
    return Machine(tmp_path, tmp_path / "config.yaml", lambda: False, lambda: PLAIN)


def process(proc: Path, pid: str, name: str, *, network: str) -> None:
    (proc / pid / "ns").mkdir(parents=True)
    (proc / pid / "ns" / "net").symlink_to(network)
    (proc / pid / "comm").write_text(f"{name}\n")


def test_a_machine_without_kubernetes_is_free(machine: Machine) -> None:
    assert other_node(machine) is None


@pytest.mark.parametrize("name", ["kubelet", "k3s-server", "kubelite"])
def test_a_running_node_of_any_distribution_is_found(machine: Machine, name: str) -> None:
    process(machine.proc, "7", name, network="net:[1]")
    assert other_node(machine) == f"process {name}, pid 7"


def test_a_node_inside_a_container_is_no_rival(machine: Machine) -> None:
    process(machine.proc, "7", "kubelet", network="net:[2]")
    assert other_node(machine) is None


@pytest.mark.parametrize("chain", ["KUBE-SERVICES", "KUBE-ROUTER-INPUT", "KUBE-NWPLCY-ABC"])
def test_a_node_is_found_by_the_chains_that_down_would_remove_or_break(machine: Machine, chain: str) -> None:
    ruled = replace(machine, saved_rules=lambda: f"*filter\n:INPUT ACCEPT [0:0]\n:{chain} - [0:0]\nCOMMIT\n")
    assert other_node(ruled) == f"iptables chain {chain}"


def test_a_stopped_kubeadm_node_is_found_by_its_configuration(machine: Machine) -> None:
    machine.kubelet_config.touch()
    assert "config.yaml" in (other_node(machine) or "")


def test_a_proxy_in_nftables_mode_is_found_by_its_table(machine: Machine) -> None:
    assert other_node(replace(machine, has_proxy_table=lambda: True)) == "nftables table kube-proxy"


def test_our_own_node_is_repaired_and_a_strangers_is_not_touched(machine: Machine, tmp_path: Path) -> None:
    process(machine.proc, "7", "kubelet", network="net:[1]")
    settings = Settings(state=tmp_path / "state", cache=tmp_path)
    with pytest.raises(UnsuitableHostError, match=r"kubelet, pid 7.*--context"):
        refuse_other_node(settings, machine)
    settings.state.mkdir()
    (settings.state / "host.json").touch()
    refuse_other_node(settings, machine)
