"""Whole lives in which each write once fails in each of three ways: what is left is as in a life without a fault.

Every life is lived undisturbed first. Then, for the n-th write of a stage, it is lived again with the fault at the n-th
write of each of its stages, and compared stage by stage. The API server is in memory (support/memory_api.py); kills on
a real one: tests/api/test_kill_sweep.py.
"""

import functools

import pytest

from support.lives import LIVES, Script
from support.memory_api import MemoryApi
from support.simulated_life import Life
from support.sweep import Fault, Mortal, Story, differences, live

NAMESPACE = "research"


async def lived(script: Script, mortal: Mortal, fatal: int = -1) -> Story:
    api = MemoryApi()
    life = Life(api.cluster(), NAMESPACE, changes=script.changes)
    api.now = life.now
    sandboxes = {"name": "harborrl-sandboxes", "labels": {"harborrl.dev/sandboxes": "true"}}
    await life.cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": sandboxes})
    return await live(life, script.stages, mortal, fatal, spared=script.spared)


@functools.cache
def known() -> dict[str, Story]:
    return {}


async def undisturbed(name: str) -> Story:
    if name not in known():
        known()[name] = await lived(LIVES[name], Mortal())
    return known()[name]


@pytest.mark.parametrize("name", LIVES)
async def test_a_life_without_a_fault_makes_its_clusters_and_says_nothing_twice(name: str) -> None:
    story = await undisturbed(name)
    assert (tuple(story.made), story.faults) == (LIVES[name].made, 0)
    assert all(story.writes[LIVES[name].spared :]), story.writes


@pytest.mark.parametrize("fault", Fault, ids=lambda fault: fault.name.lower())
@pytest.mark.parametrize("name", LIVES)
async def test_a_write_that_fails_changes_nothing_about_the_rest_of_the_life(name: str, fault: Fault) -> None:
    script, expected, faults = LIVES[name], await undisturbed(name), 0
    wrong: list[str] = []
    for place in range(1, max(expected.writes) + 1):
        story = await lived(script, Mortal(fault), place)
        wrong += [f"write {place} of {one}" for one in differences(story, expected, script.stages, script.beside)]
        faults += story.faults
    assert wrong == []
    assert faults >= sum(expected.writes)
