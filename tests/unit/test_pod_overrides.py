"""`podOverrides` change what they name and take nothing away that a pod needs to do its work."""

from typing import Any

import pytest

from harborrl_operator.resolve import resolve
from harborrl_operator.resources.common import merged
from harborrl_operator.resources.ray_cluster import ray_cluster
from support import hrl


def head(overrides: dict[str, Any]) -> dict[str, Any]:
    cluster = ray_cluster(resolve(hrl.job({"trainer.podOverrides": overrides}), hrl.SETTINGS), 1, {})
    spec: dict[str, Any] = cluster["spec"]["headGroupSpec"]["template"]["spec"]
    return spec


def names(things: list[dict[str, Any]]) -> list[str]:
    return [thing["name"] for thing in things]


def test_an_init_container_of_the_users_leaves_the_supervisor_where_it_is() -> None:
    spec = head({"initContainers": [{"name": "warm-up", "image": "x"}]})
    assert names(spec["initContainers"]) == ["supervisor", "warm-up"]


def test_a_second_container_and_volume_come_after_ours_and_ray_stays_the_first() -> None:
    spec = head({"containers": [{"name": "exporter", "image": "x"}], "volumes": [{"name": "scratch", "emptyDir": {}}]})
    assert names(spec["containers"]) == ["ray-head", "exporter"]
    assert names(spec["volumes"]) == [*names(head({})["volumes"]), "scratch"]


def test_a_container_of_ours_is_changed_by_its_name() -> None:
    spec = head({"containers": [{"name": "ray-head", "workingDir": "/elsewhere"}]})
    assert spec["containers"][0]["workingDir"] == "/elsewhere"
    assert spec["containers"][0]["image"] == head({})["containers"][0]["image"]


@pytest.mark.parametrize(
    ("before", "override", "after"),
    [
        ({"tolerations": [{"key": "a"}]}, {"tolerations": [{"key": "b"}]}, {"tolerations": [{"key": "b"}]}),
        ({"a": {"b": 1}}, {"a": {"c": 2}}, {"a": {"b": 1, "c": 2}}),
        ({"x": [{"name": "a", "v": 1}]}, {"x": []}, {"x": [{"name": "a", "v": 1}]}),
        ({"x": 1}, {"x": None}, {"x": None}),
    ],
    ids=["unnamed lists are replaced", "objects merge", "an empty list takes nothing away", "null is a value"],
)
def test_merging(before: dict[str, Any], override: dict[str, Any], after: dict[str, Any]) -> None:
    assert merged(before, override) == after
