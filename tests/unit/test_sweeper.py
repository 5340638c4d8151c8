"""One thing that cannot be judged or removed holds up nothing else, and what cannot be seen is not taken for gone."""

from dataclasses import replace
from typing import Any, override

import pytest

from harborrl_operator.errors import ClusterError
from harborrl_operator.sweeper import sweep
from support import hrl
from support.memory_cluster import MemoryCluster

SERVED = replace(hrl.SETTINGS, watch_namespaces="team-a,team-b")


class Closed(MemoryCluster):
    """`team-b` answers 403, as a namespace does whose Role is gone, or 500."""

    def __init__(self, status: int = 403) -> None:
        super().__init__()
        self._status = status

    @override
    async def find(
        self, kind: str, namespace: str | None, selector: str = "", fields: str = ""
    ) -> list[dict[str, Any]]:
        return [thing for (of, _, _), thing in sorted(self.objects.items(), key=str) if of == kind]

    @override
    async def get(self, kind: str, namespace: str | None, name: str) -> dict[str, Any] | None:
        if namespace == "team-b":
            raise ClusterError(f"get {kind} {name}", self._status, "no")
        return await super().get(kind, namespace, name)

    def anchor(self, name: str, namespace: str) -> None:
        labels = {f"harborrl.dev/{key}": value for key, value in owner(namespace).items()}
        self.put("ConfigMap", "harborrl-sandboxes", name, {"metadata": {"labels": labels}})

    @property
    def left(self) -> list[str]:
        return sorted(name for kind, _, name in self.objects if kind == "ConfigMap")


def owner(namespace: str) -> dict[str, str]:
    return {"job": "x", "job-namespace": namespace, "job-uid": "u", "role": "anchor"}


def two_anchors(status: int = 403) -> Closed:
    cluster = Closed(status)
    cluster.anchor("1-of-team-b", "team-b")
    cluster.anchor("2-orphan-of-team-a", "team-a")
    return cluster


async def test_an_anchor_of_a_namespace_that_is_closed_to_us_stays_and_holds_up_no_other() -> None:
    cluster = two_anchors()
    assert await sweep(cluster, SERVED) == 1
    assert cluster.left == ["1-of-team-b"]


async def test_an_anchor_of_another_operators_namespace_is_not_asked_for() -> None:
    cluster = two_anchors(500)
    assert await sweep(cluster, replace(SERVED, watch_namespaces="team-a")) == 1
    assert cluster.left == ["1-of-team-b"]


async def test_a_refusal_is_told_once_the_round_is_over() -> None:
    cluster = two_anchors(500)
    with pytest.raises(ClusterError, match="get HarborRLJob x"):
        await sweep(cluster, SERVED)
    assert cluster.left == ["1-of-team-b"]


async def test_an_operator_of_the_whole_cluster_says_what_it_may_not_read() -> None:
    with pytest.raises(ClusterError, match="403"):
        await sweep(two_anchors(), hrl.SETTINGS)
