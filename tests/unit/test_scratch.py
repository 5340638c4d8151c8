"""A preset that writes its paused trainer to disk has a disk to write it to."""

import json
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import yaml

from harborrl_operator.document import UID, document_of, read_manifest
from harborrl_operator.models import Settings, parse_job
from harborrl_operator.quantities import amount
from harborrl_operator.resolve import resolve
from harborrl_operator.resources.ray_cluster import ray_cluster
from harborrl_trainer.job import parse_job as parse_document
from harborrl_trainer.launch import launch
from harborrl_trainer.launch.argv_command import dry_start
from support import hrl
from support.launches import value

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/miles/glm52-lora.yaml"


def pods(**trainer: Any) -> list[dict[str, Any]]:
    """The head's spec and the workers' of the example."""
    manifest = yaml.safe_load(EXAMPLE.read_text())
    manifest["spec"]["trainer"] |= trainer
    job = parse_job({**manifest, "metadata": {**manifest["metadata"], "uid": UID}})
    spec = ray_cluster(resolve(job, Settings()), 1, {})["spec"]
    return [group["template"]["spec"] for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"])]


def scratch_of(pod: dict[str, Any]) -> dict[str, Any]:
    (volume,) = [volume for volume in pod["volumes"] if volume["name"] == "scratch"]
    return dict(volume)


def test_each_node_of_the_lora_preset_has_a_bounded_volume_outside_memory_where_miles_writes() -> None:
    document = document_of(read_manifest(EXAMPLE.read_text(), str(EXAMPLE)), Settings())["document"]
    job = parse_document(json.dumps(document))
    (written,) = value(launch(job, dry_start(job)), "--offload-train-disk-dir") or ["nowhere"]
    assert len(pods()) == 2
    for pod in pods():
        assert scratch_of(pod) == {"name": "scratch", "emptyDir": {"sizeLimit": "500Gi"}}
        (mount,) = [mount for mount in pod["containers"][0]["volumeMounts"] if mount["name"] == "scratch"]
        assert PurePosixPath(written).is_relative_to(mount["mountPath"])


def test_the_example_requests_the_disk_that_its_volume_may_take() -> None:
    for pod in pods():
        requested = pod["containers"][0]["resources"]["requests"]["ephemeral-storage"]
        assert amount(requested) >= amount(scratch_of(pod)["emptyDir"]["sizeLimit"])


@pytest.mark.parametrize(("nodes", "size"), [(2, "1000Gi"), (8, "250Gi"), (6, "334Gi")])
def test_more_nodes_share_what_one_trainer_leaves(nodes: int, size: str) -> None:
    assert scratch_of(pods(nodes=nodes)[0])["emptyDir"] == {"sizeLimit": size}


def test_a_volume_of_that_name_in_the_overrides_takes_the_place_of_ours() -> None:
    own = {"name": "scratch", "hostPath": {"path": "/nvme/glm52"}}
    for pod in pods(podOverrides={"volumes": [own]}):
        assert scratch_of(pod) == own
        assert "scratch" in [mount["name"] for mount in pod["containers"][0]["volumeMounts"]]


def test_overrides_that_are_no_volumes_are_left_to_the_api_server() -> None:
    assert len(pods(podOverrides={"volumes": ["scratch", 7]})) == 2


def test_other_jobs_have_no_such_volume() -> None:
    spec = ray_cluster(resolve(hrl.job({"trainer.preset": "glm47-flash-sync"}), hrl.SETTINGS), 1, {})["spec"]
    assert "scratch" not in str(spec)
