"""What a trial's compose file says, and how a command's end is told."""

import json
from typing import Any

import pytest

from harborrl_agent_server.sandboxes.docker_plan import labels, networks_in, overlay, services
from harborrl_agent_server.sandboxes.seals import Seal
from harborrl_agent_server.settings import JobIdentity

MARKS = {"harborrl.dev/trial": "t"}


def planned(text: str = "", **changes: Any) -> Any:
    how: dict[str, Any] = {"marks": MARKS, "limits": {}, "pids_limit": 100, "cut_off": False, "reaches_host": False}
    return overlay(services([text] if text else []), **how | changes)


def test_every_service_and_the_network_are_marked() -> None:
    document = planned("services: {store: {image: i}, main: {}}")
    assert {name: service["labels"] for name, service in document["services"].items()} == {
        "store": MARKS,
        "main": MARKS,
    }
    assert document["networks"] == {"default": {"labels": MARKS}}


def test_the_first_process_is_ours_unless_the_task_has_its_own() -> None:
    assert "entrypoint" in planned()["services"]["main"]
    assert "entrypoint" not in planned("services: {main: {command: [serve]}}")["services"]["main"]


def test_memory_is_bounded_with_its_swap() -> None:
    main = planned(limits={"memory": "64Mi", "cpu": "1500m"})["services"]["main"]
    assert main | {"mem_limit": 64 << 20, "memswap_limit": 64 << 20, "cpus": 1.5, "pids_limit": 100} == main


def test_a_sandbox_without_network_gets_none_and_one_that_asks_a_model_finds_its_host() -> None:
    assert planned(cut_off=True)["services"]["main"]["network_mode"] == "none"
    assert "networks" not in planned(cut_off=True)
    assert planned(reaches_host=True)["services"]["main"]["extra_hosts"] == {"host.docker.internal": "host-gateway"}


def test_what_compose_would_take_for_variables_is_escaped() -> None:
    assert "$!" not in json.dumps(planned()).replace("$$!", "")


@pytest.mark.parametrize("text", ["", "services:", "- a list", "services: {main: }"])
def test_a_compose_file_that_says_nothing_adds_nothing(text: str) -> None:
    assert set(planned(text)["services"]) == {"main"}


@pytest.mark.parametrize(
    ("pools", "number"),
    [
        (None, 31),
        ([{"Base": "10.10.0.0/16", "Size": 24}], 256),
        ([{"Base": "10.10.0.0/16", "Size": 24}, {"Base": "172.20.0.0/16", "Size": 16}], 257),
        ([{"Base": "10.10.0.0/24", "Size": 16}], 1),
        ([{"Base": "fd00::/48", "Size": 64}], 0),
    ],
)
def test_address_pools_are_counted_in_networks(pools: list[dict[str, object]] | None, number: int) -> None:
    assert networks_in(pools) == number


def test_labels_name_job_server_life_and_trial() -> None:
    named = labels(JobIdentity("research", "quick", "u"), server="host-30000", life="l", trial="t")
    assert named == {
        "harborrl.dev/agent-server": "host-30000",
        "harborrl.dev/incarnation": "l",
        "harborrl.dev/trial": "t",
        "harborrl.dev/job-namespace": "research",
        "harborrl.dev/job-name": "quick",
    }


def told(seal: Seal, code: int) -> bytes:
    return f"{seal.argv([])[4]}:{code};".encode()


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_code_is_taken_out_however_the_output_is_cut(size: int) -> None:
    passed = bytearray()
    seal = Seal(passed.extend)
    output = b"before" + told(seal, 42) + b"after"
    for start in range(0, len(output), size):
        seal(output[start : start + size])
    seal.close()
    assert (seal.code, bytes(passed)) == (42, b"beforeafter")


def test_without_a_code_everything_passes() -> None:
    passed = bytearray()
    seal = Seal(passed.extend)
    seal(b"x" * 100 + told(seal, 4)[:-1])
    seal.close()
    assert (seal.code, len(passed)) == (None, 100 + len(told(seal, 4)) - 1)


def test_a_code_is_taken_out_of_a_whole_text() -> None:
    seal = Seal(lambda _: None)
    assert seal.taken_out("a\n" + told(seal, 9).decode()) == "a\n"
    assert seal.code == 9
    assert seal.taken_out(None) is None
