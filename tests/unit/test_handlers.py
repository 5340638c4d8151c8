"""Which events ask for a pass."""

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import kopf
import pytest

from harborrl_operator.applied import Applied
from harborrl_operator.constants import Role
from harborrl_operator.handlers import child_changed
from harborrl_operator.names import JobNames
from harborrl_operator.pod_events import PodEvents

NAMES = JobNames("research", "quickstart", "5f0c2a9e")


async def asked_by(role: Role) -> list[tuple[str, str]]:
    keys: list[tuple[str, str]] = []
    queue = SimpleNamespace(add=lambda key, _after=0.0: keys.append(key))
    runtime = SimpleNamespace(queue=queue, applied=Applied(), pod_events=PodEvents())
    memo = kopf.Memo(runtime=runtime)
    body = {"kind": "Pod", "metadata": {"name": "x", "namespace": "research"}}
    arguments: dict[str, Any] = {
        "name": "x",
        "type": "MODIFIED",
        "labels": NAMES.labels(role),
        "memo": memo,
        "body": body,
    }
    changed = cast("Callable[..., Awaitable[None]]", child_changed)  # kopf types what it decorates as returning object
    await changed(**arguments)
    return keys


@pytest.mark.parametrize("role", [Role.AGENT_SERVER, Role.PREFLIGHT, Role.TRAINER])
async def test_an_event_of_a_child_asks_for_a_pass_over_its_job(role: Role) -> None:
    assert await asked_by(role) == [("research", "quickstart")]


@pytest.mark.parametrize("role", [Role.SANDBOX, Role.ANCHOR])
async def test_sandboxes_come_and_go_in_hundreds_without_asking_for_a_pass(role: Role) -> None:
    assert await asked_by(role) == []
