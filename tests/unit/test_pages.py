"""Lists are read page by page, and an answer that comes in parts is one list."""

import json

import pytest
from kubernetes.aio import client

from harborrl_operator.cluster import PAGE, Cluster
from harborrl_operator.errors import ClusterError
from harborrl_operator.transport import Answer, Request


class Pages:
    """An API server that gives `pages`, the next one for the token of the one before."""

    def __init__(self, *pages: Answer) -> None:
        self.pages = list(pages)
        self.asked: list[dict[str, str]] = []

    async def send(self, request: Request) -> Answer:
        self.asked.append(dict(request.query))
        return self.pages[len(self.asked) - 1]

    def cluster(self) -> Cluster:
        return Cluster(client.ApiClient(client.Configuration()), self.send)


def page(*names: str, token: str = "") -> Answer:
    items = [{"metadata": {"name": name}} for name in names]
    return Answer(200, json.dumps({"items": items, "metadata": {"continue": token} if token else {}}))


async def test_a_list_in_parts_is_read_to_its_end_with_the_same_selector() -> None:
    server = Pages(page("a", "b", token="t1"), page("c", token="t2"), page("d"))
    found = await server.cluster().find("Pod", "research", "harborrl.dev/job=x")
    assert [thing["metadata"]["name"] for thing in found] == ["a", "b", "c", "d"]
    assert [asked.get("continue") for asked in server.asked] == [None, "t1", "t2"]
    assert {(asked["limit"], asked["labelSelector"]) for asked in server.asked} == {(str(PAGE), "harborrl.dev/job=x")}


async def test_a_page_that_has_expired_fails_the_read_and_no_half_list_is_taken_for_a_whole_one() -> None:
    server = Pages(page("a", token="t1"), Answer(410, '{"message": "the continue token has expired"}'))
    with pytest.raises(ClusterError, match="expired"):
        await server.cluster().find("Pod", "research")
