"""Old trial directories go, by number and age; failed ones later, and nothing that is live or a stranger's."""

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harborrl_agent_server.retention import FAILED_FACTOR, Kept, Rule, Shelf, condemned, keep_sweeping
from support.agent_http import eventually, replies
from support.agent_server import MARKS, stage
from support.agent_tasks import write_task

NOW = 1_000_000.0


def kept(*ages: float, failed: bool = False) -> list[Kept]:
    return [Kept(Path(f"t-{'f' if failed else 'g'}{age:g}"), NOW - age, failed) for age in ages]


def names(paths: Sequence[Path]) -> list[str]:
    return [path.name for path in paths]


def test_the_oldest_go_when_there_are_too_many() -> None:
    assert names(condemned(kept(10, 30, 20, 40), Rule(2, 0, 0), NOW)) == ["t-g40", "t-g30"]


def test_the_old_go_however_few_they_are() -> None:
    assert names(condemned(kept(10, 100), Rule(0, 50, 0), NOW)) == ["t-g100"]


def test_no_rule_removes_nothing() -> None:
    assert condemned(kept(10, 1e9), Rule(0, 0, 0), NOW) == []


def test_failed_trials_stay_longer_and_are_counted_apart() -> None:
    rule = Rule(1, 50, 0)
    both = [*kept(10, 20), *kept(10, 20, 60, 199, 201, failed=True)]
    assert names(condemned(both, rule, NOW)) == ["t-f201", "t-g20"]
    assert FAILED_FACTOR == 4


def test_what_may_be_asked_for_again_stays_whatever_the_rule_says() -> None:
    assert condemned(kept(10, 20, 30), Rule(1, 5, young_s=7200), NOW) == []


@given(st.lists(st.tuples(st.floats(0, 1e6), st.booleans())), st.integers(0, 5), st.floats(0, 1e6), st.floats(0, 1e6))
def test_never_the_young_and_never_more_than_the_number_remain_of_the_rest(
    trials: list[tuple[float, bool]], number: int, age_s: float, young_s: float
) -> None:
    all_of_them = [Kept(Path(str(n)), NOW - age, failed) for n, (age, failed) in enumerate(trials)]
    rule = Rule(number, age_s, young_s)
    gone = set(condemned(all_of_them, rule, NOW))
    stay = [one for one in all_of_them if one.path not in gone]
    assert all(NOW - one.changed > young_s for one in all_of_them if one.path in gone)
    old_and_graded = [one for one in stay if not one.failed and NOW - one.changed > young_s]
    assert not number or len(old_and_graded) <= number


def trial(root: Path, name: str, age: float, *, reward: float | None = 1.0, over: bool = True) -> Path:
    folder = root / f"{name}-0123456789ab"
    folder.mkdir(parents=True)
    report = {} if reward is None else {"reward": reward}
    record = folder / "run.json"
    if over:
        record.write_text(json.dumps({"answer": {"eval_report": report}}))
        os.utime(record, (NOW - age, NOW - age))
    os.utime(folder, (NOW - age, NOW - age))
    return folder


def test_a_shelf_knows_graded_failed_and_unfinished_trials(tmp_path: Path) -> None:
    trial(tmp_path, "graded", 1, reward=0.0)
    trial(tmp_path, "failed", 2, reward=None)
    trial(tmp_path, "begun", 3, over=False)
    (trial(tmp_path, "odd", 4) / "run.json").write_text("{")
    shelf = Shelf(tmp_path)
    seen = {one.path.name.rsplit("-", 1)[0]: one.failed for one in shelf.trials()}
    assert seen == {"graded": False, "failed": True, "begun": True, "odd": True}
    assert {one.path.name: one.failed for one in shelf.trials()} == {f"{k}-0123456789ab": v for k, v in seen.items()}


def test_a_sweep_leaves_live_trials_strangers_and_links_alone(tmp_path: Path) -> None:
    live, old = trial(tmp_path, "live", 100), trial(tmp_path, "old", 100)
    stranger = tmp_path / "notes"
    stranger.mkdir()
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "data").mkdir(parents=True)
    link = tmp_path / "link-0123456789ab"
    link.symlink_to(elsewhere)
    assert Shelf(tmp_path).sweep(Rule(0, 10, 0), NOW, {live.name}) == [old.name]
    assert (live.exists(), stranger.exists(), link.exists(), (elsewhere / "data").exists()) == (True,) * 4


def test_a_trial_of_a_thousand_levels_goes_and_what_its_links_name_stays(tmp_path: Path) -> None:
    outside, old = tmp_path / "outside", trial(tmp_path / "trials", "old", 100)
    (outside / "data").mkdir(parents=True)
    (old / "link").symlink_to(outside)
    (old / "broken").symlink_to("nowhere")
    at = os.open(old, os.O_RDONLY)
    for _ in range(sys.getrecursionlimit() + 100):
        os.mkdir("a", dir_fd=at)
        below = os.open("a", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)
    assert Shelf(tmp_path / "trials").sweep(Rule(0, 10, 0), NOW * 2, ()) == [old.name]
    assert (old.exists(), (outside / "data").exists()) == (False, True)


@pytest.mark.namespaces
@pytest.mark.filterwarnings(MARKS[1].args[0])
async def test_a_servers_own_trials_are_on_the_shelf_and_a_live_one_is_spared(tmp_path: Path) -> None:
    write_task(tmp_path / "tasks")
    async with stage(tmp_path / "tasks", replies("TASK_DONE")) as server:
        answer = await server.run()
        shelf = Shelf(server.settings.trials_dir)
        assert [(one.path.name, one.failed) for one in shelf.trials()] == [(answer["trial_name"], False)]
        seen: list[str] = []

        def live() -> list[str]:
            seen.append("asked")
            return []

        sweeping = asyncio.ensure_future(keep_sweeping(shelf, Rule(0, 1e-9, 0), live, interval_s=0.01))
        await eventually(lambda: not any(server.settings.trials_dir.iterdir()))
        sweeping.cancel()
    assert seen


async def test_a_volume_that_is_away_is_tried_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "later"
    sweeping = asyncio.ensure_future(keep_sweeping(Shelf(folder), Rule(0, 1, 0), list, interval_s=0.01))
    await eventually(lambda: "cannot be read" in caplog.text)
    old = trial(folder, "old", 0)
    await eventually(lambda: not old.exists())
    sweeping.cancel()
