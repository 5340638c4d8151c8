"""What a policy makes mini-swe-agent leave: little of it is kept, without the token, and none of it breaks anything."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from harborrl_agent_server.agents.mini_swe_output import KEPT_BYTES, document_of, end_as_it_says, tidied
from harborrl_agent_server.settings import AGENTS
from support.agent_http import replies
from support.agent_server import MARKS, CustomProvider, stage
from support.agent_tasks import write_task
from support.mini_swe import FloodsItsOutput

TOKEN = "0123456789abcdef" * 2


@pytest.mark.parametrize("after", range(0, 40, 3))
def test_no_part_of_the_token_is_kept_wherever_the_cut_goes(tmp_path: Path, after: int) -> None:
    path = tmp_path / "output.txt"
    path.write_text(TOKEN + "." * (KEPT_BYTES - len(TOKEN) - after) + TOKEN * 2)
    assert not tidied(path, TOKEN)
    kept = path.read_text()
    assert len(kept) <= KEPT_BYTES
    assert kept.startswith("[token]...")
    assert kept.replace("[token]", "").strip(".") == ""


def test_what_is_short_is_kept_whole(tmp_path: Path) -> None:
    path = tmp_path / "output.txt"
    path.write_text(f"a {TOKEN} b")
    assert tidied(path, TOKEN)
    assert path.read_text() == "a [token] b"


@pytest.mark.parametrize("text", [None, "", "{", "[]", "3", '"info"', "[" * 100_000, '{"info": 3}', '{"info": []}'])
def test_a_trajectory_that_is_none_says_nothing_about_the_end(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "trajectory.json"
    if text is not None:
        path.write_text(text)
    progress: dict[str, Any] = {}
    end_as_it_says(document_of(path), progress)
    assert progress == {}


def test_its_own_limit_is_told(tmp_path: Path) -> None:
    path = tmp_path / "trajectory.json"
    path.write_text(json.dumps({"info": {"exit_status": "LimitsExceeded"}}))
    progress: dict[str, Any] = {}
    end_as_it_says(document_of(path), progress)
    assert progress == {"end": "TurnLimitExceeded"}


@pytest.mark.namespaces
@pytest.mark.filterwarnings(MARKS[1].args[0])
async def test_a_flood_costs_its_trial_nothing_but_what_is_not_kept_of_it(tmp_path: Path) -> None:
    write_task(tmp_path / "tasks")
    provider = CustomProvider(f"{FloodsItsOutput.__module__}:{FloodsItsOutput.__qualname__}")
    async with stage(tmp_path / "tasks", replies("hello"), provider=provider, allowed_agents=AGENTS) as server:
        answer = await server.run(agent_name="mini-swe-agent")
        agent = server.settings.trials_dir / answer["trial_name"] / "agent"
    assert (answer["exit_status"], answer["reward"]) == ("Submitted", 0.0), answer
    assert answer["warnings"] == [
        "mini-swe-agent left more output.txt than the 8 MiB that are kept",
        "mini-swe-agent left a trajectory.json that cannot be read",
    ]
    kept = (agent / "mini-swe-agent.txt").read_text() + (agent / "mini-swe-agent.trajectory.json").read_text()
    assert "/m/[token]/v1" in kept
    assert not re.search("/m/[0-9a-f]{8}", kept)
    assert not (agent / "trajectory.json").exists()
