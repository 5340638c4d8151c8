"""A namespace that is gone is left out, and nothing else."""

import pytest
from kubernetes.aio import client

from harborrl_operator.cluster import Cluster
from harborrl_operator.models import Settings
from harborrl_operator.scope import served
from harborrl_operator.transport import Answer, Request


def cluster(**answers: int) -> Cluster:
    async def send(request: Request) -> Answer:
        namespace = request.path.split("/namespaces/")[1].split("/")[0]
        return Answer(answers[namespace], '{"items": []}')

    return Cluster(client.ApiClient.__new__(client.ApiClient), send)


@pytest.mark.parametrize(
    ("answers", "kept", "closed"),
    [
        ({"a": 200, "b": 200}, ("a", "b"), ()),
        ({"a": 200, "b": 403}, ("a",), ("b",)),
        ({"a": 500, "b": 403}, ("a",), ("b",)),
        ({"a": 403, "b": 403}, ("a", "b"), ()),
    ],
    ids=["all let us", "one is gone", "one is in trouble", "none lets us: something else is wrong"],
)
async def test_it_serves_the_namespaces_that_let_it(
    answers: dict[str, int], kept: tuple[str, ...], closed: tuple[str, ...]
) -> None:
    settings, left_out = await served(cluster(**answers), Settings(watch_namespaces="a,b"))
    assert (settings.namespaces, left_out) == (kept, closed)


async def test_an_operator_for_all_namespaces_asks_nothing() -> None:
    assert await served(cluster(), Settings()) == (Settings(), ())
