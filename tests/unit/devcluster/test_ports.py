import os
import socket

import pytest
from devcluster.errors import PortTakenError
from devcluster.ports import free_ports, listening_inodes, refuse_taken

TABLE = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:6748 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 11501 1 0 100 0 0 10 0
   1: 0100007F:6749 0100007F:0050 01 00000000:00000000 00:00000000 00000000     0        0 11502 1 0 100 0 0 10 0
"""


def test_only_listening_sockets_count() -> None:
    assert listening_inodes(TABLE) == {0x6748: 11501}


def test_a_taken_port_is_refused_with_its_number_purpose_and_holder() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(PortTakenError, match=rf"{port} \(kubelet\) is held by .*\(pid {os.getpid()}\)"):
            refuse_taken({port: "kubelet"})


def test_a_port_of_our_own_program_is_not_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        refuse_taken({server.getsockname()[1]: "kubelet"}, lambda pid: pid == os.getpid())


def test_a_port_on_ipv6_is_seen_too() -> None:
    with socket.create_server(("::", 0), family=socket.AF_INET6) as server, pytest.raises(PortTakenError):
        refuse_taken({server.getsockname()[1]: "kubelet"})


def test_free_ports_are_distinct_and_can_be_bound() -> None:
    ports = free_ports(5)
    assert len(set(ports)) == 5
    refuse_taken(dict.fromkeys(ports, "test"))
