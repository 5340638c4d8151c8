"""The operator is killed between any two of its API calls, and a fresh one goes on as if nothing had happened.

Each write of a whole native life is swept on a real API server. One life has a kill in each of its stages, at the same
place; what is there at the end of a stage is compared with the undisturbed life, so that each kill is judged by itself.
Other lives and other faults, in memory: tests/unit/test_fault_sweep.py.
"""

import asyncio
import secrets

import pytest

from harborrl_operator.cluster import Cluster
from support.simulated_life import JOB, STAGES, Life
from support.sweep import Mortal, Story, differences, live

pytestmark = [pytest.mark.api, pytest.mark.processes]

LIVES_AT_ONCE = 4


async def test_a_kill_at_any_call_changes_nothing_about_the_rest_of_the_life(bare_cluster: Cluster) -> None:
    run = secrets.token_hex(3)
    undisturbed = await live(Life(bare_cluster, f"sweep-{run}"), STAGES, Mortal())
    assert undisturbed.made == [f"{JOB}-a1", f"{JOB}-a2"]
    assert undisturbed.faults == 0
    assert set(undisturbed.events.values()) == {1}
    slots = asyncio.Semaphore(LIVES_AT_ONCE)

    async def disturbed(fatal: int) -> Story:
        async with slots:
            return await live(Life(bare_cluster, f"sweep-{run}-{fatal}"), STAGES, Mortal(), fatal)

    places = range(1, max(undisturbed.writes) + 1)
    stories = await asyncio.gather(*map(disturbed, places))
    for place, story in zip(places, stories, strict=True):
        assert differences(story, undisturbed, STAGES) == [], f"killed after write {place}"
    assert sum(story.faults for story in stories) >= sum(undisturbed.writes)
