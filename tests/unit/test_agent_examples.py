"""The examples of agents and sandboxes are admitted by the operator, as `harborrl validate` judges it."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import yaml

from harborrl_agent_server.agents import own
from harborrl_cli.validation.jobs import Assumed, judge
from harborrl_operator.models import parse_job
from harborrl_operator.resolve import ResolvedJob, resolve
from support import hrl

FOLDER = Path(__file__).resolve().parents[2] / "examples/agents"
EXAMPLES = sorted(FOLDER.glob("*.yaml"))


def manifest(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
    return found


def resolved(name: str) -> ResolvedJob:
    made = manifest(name)
    return resolve(
        parse_job({**made, "metadata": {"namespace": "research", "uid": "u", **made["metadata"]}}), hrl.SETTINGS
    )


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_admitted_without_a_remark(example: Path) -> None:
    judged = judge(manifest(example.stem), Assumed())
    assert [(one.severity, one.path, one.message) for one in judged.findings] == []


def test_each_shows_what_its_page_says() -> None:
    inside, own, warm = resolved("mini-swe-agent"), resolved("own-agent"), resolved("warm-pool")
    assert (inside.needs_gateway, own.needs_gateway, warm.needs_gateway) == (True, True, False)
    assert inside.sandbox["tools"]["image"]
    assert warm.sandbox["warmPool"] == {"size": 4, "images": 1}
    assert {example.stem for example in EXAMPLES} == {"mini-swe-agent", "own-agent", "warm-pool"}


def test_the_agent_of_ones_own_is_one_that_the_server_takes_with_the_options_of_its_job() -> None:
    spec = importlib.util.spec_from_file_location("commander", FOLDER / "commander.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    server = manifest("own-agent")["spec"]["agentServer"]
    (name, place) = next(iter(server["agents"].items()))
    own.take(name, place, getattr(module, place.partition(":")[2])).preflight(server["agentKwargs"])
