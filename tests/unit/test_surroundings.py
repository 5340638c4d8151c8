"""What others have a say in is read when it is needed, and where the operator's rights end the job goes on."""

import asyncio
from typing import Any, override

import pytest

from harborrl_operator.errors import ClusterError
from harborrl_operator.observe import observe
from harborrl_operator.observed import Surroundings
from support import hrl
from support.memory_cluster import MemoryCluster

URL = {"agentServer.url": "http://agents.team.svc:30000"}


class Counting(MemoryCluster):
    """Counts lists of all namespaces, and refuses one of them."""

    def __init__(self, changes: dict[str, Any] | None = None, *, refused: str = "", status: int = 403) -> None:
        super().__init__(hrl.merged(hrl.QUICKSTART_SPEC, changes or {}))
        self.lists: list[str] = []
        self.refused, self.status = refused, status
        for kind, namespace in (
            ("ResourceQuota", "harborrl-sandboxes"),
            ("LimitRange", "harborrl-sandboxes"),
            ("Node", None),
        ):
            self.put(kind, namespace, "one", {})

    @override
    async def find(
        self, kind: str, namespace: str | None, selector: str = "", fields: str = ""
    ) -> list[dict[str, Any]]:
        self.lists.append(kind)
        if kind == self.refused and namespace is None:
            raise ClusterError(f"list {kind}", self.status, "no")
        return await super().find(kind, namespace, selector, fields)

    async def look(self, changes: dict[str, Any] | None = None) -> Surroundings:
        return (await observe(self, hrl.job(changes), hrl.SETTINGS, hrl.NOW)).surroundings


def with_child(cluster: Counting, kind: str, name: str, **parts: Any) -> Counting:
    labels = {"harborrl.dev/job": "quickstart", "harborrl.dev/job-uid": hrl.UID, "harborrl.dev/role": "preflight"}
    cluster.put(kind, "research", name, {"metadata": {"labels": labels}, **parts})
    return cluster


async def test_quotas_ranges_and_nodes_are_read_once_the_preflight_has_its_numbers() -> None:
    cluster = with_child(Counting(), "Pod", "quickstart-preflight", status={"phase": "Running"})
    assert await cluster.look() == Surroundings()
    assert "Node" not in cluster.lists
    seen = await with_child(cluster, "Pod", "quickstart-preflight", status={"phase": "Succeeded"}).look()
    assert (len(seen.quotas), seen.has_limit_range, len(seen.nodes)) == (1, True, 1)


async def test_other_jobs_are_read_for_a_server_that_several_may_bring() -> None:
    assert [job.name for job in (await Counting(URL).look(URL)).jobs] == ["quickstart"]
    assert (await Counting().look()).jobs == ()


async def test_of_many_jobs_those_are_looked_at_that_may_share_the_server() -> None:
    url = {"agentServer.url": "http://source-agent.other.svc:30000"}
    cluster = Counting(url)
    for name, spec in (
        ("source", hrl.QUICKSTART_SPEC),
        ("beside", hrl.merged(hrl.QUICKSTART_SPEC, url)),
        *((f"own-{index}", hrl.QUICKSTART_SPEC) for index in range(500)),
    ):
        cluster.put("HarborRLJob", "other", name, {"metadata": {"uid": name}, "spec": spec})
    assert {job.name for job in (await cluster.look(url)).jobs} == {"quickstart", "source", "beside"}


async def test_twenty_passes_at_once_list_the_jobs_once() -> None:
    cluster = Counting(URL)
    await asyncio.gather(*(cluster.look(URL) for _ in range(20)))
    assert cluster.lists.count("HarborRLJob") == 1


async def test_a_job_that_cannot_be_read_takes_nothing() -> None:
    cluster = Counting(URL)
    cluster.put("HarborRLJob", "other", "broken", {"spec": {"oops": 1}})
    assert [job.name for job in (await cluster.look(URL)).jobs] == ["quickstart"]


async def test_an_operator_of_one_namespace_sees_that_ones_jobs() -> None:
    cluster = Counting(URL, refused="HarborRLJob")
    cluster.put("HarborRLJob", "other", "unseen", {"spec": hrl.QUICKSTART_SPEC})
    assert [job.name for job in (await cluster.look(URL)).jobs] == ["quickstart"]


async def test_nodes_that_may_not_be_read_are_none() -> None:
    cluster = with_child(Counting(refused="Node"), "Pod", "quickstart-preflight", status={"phase": "Succeeded"})
    seen = await cluster.look()
    assert (len(seen.quotas), seen.nodes) == (1, ())


async def test_an_api_server_that_does_not_answer_is_no_empty_cluster() -> None:
    cluster = Counting(refused="Node", status=0)
    with pytest.raises(ClusterError):
        await with_child(cluster, "Pod", "quickstart-preflight", status={"phase": "Succeeded"}).look()


async def test_a_running_attempt_asks_for_none_of_it() -> None:
    cluster = with_child(Counting(URL), "RayCluster", "quickstart-a1", spec={})
    assert await cluster.look(URL) == Surroundings()
    assert "HarborRLJob" not in cluster.lists
