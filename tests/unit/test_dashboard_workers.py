"""The dashboard over several workers: one picture, true also when some of them hang, die or come again."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

from harborrl_agent_server.dashboard.state import KEPT_ENDED, NOTHING, after
from harborrl_agent_server.dispatch.lost import WORKER_LOST
from harborrl_agent_server.phases import Phase
from support.dashboard import ended, record, running
from support.told_workers import told_workers


async def test_trials_of_all_workers_are_one_list_in_the_order_in_which_they_came(tmp_path: Path) -> None:
    async with told_workers(tmp_path) as crew:
        crew.tellers[0].live = [running("a", age_s=9, worker=0), running("c", Phase.QUEUED, age_s=3, worker=0)]
        crew.tellers[1].live = [running("b", age_s=6, worker=1)]
        crew.slots.taken = 2
        status, seen = await crew.source.look()
    assert [(view.id, view.worker) for view in seen.live] == [("a", 0), ("b", 1), ("c", 0)]
    assert (status, seen.workers, seen.silent) == ("ok", 2, ())
    assert (seen.capacity, seen.in_flight, seen.queued) == (8, 2, 0)  # of the pod, not what each worker says


async def test_what_has_ended_is_told_once_and_kept_by_whom_it_was_told(tmp_path: Path) -> None:
    async with told_workers(tmp_path) as crew:
        crew.tellers[0].ended = [ended("a", ended_s_ago=9), ended("c", ended_s_ago=3)]
        crew.tellers[1].ended = [ended("b", ended_s_ago=6)]
        first = (await crew.source.look())[1]
        second = (await crew.source.look())[1]
    assert [view.id for view in first.finished] == ["c", "b", "a"]
    assert (second.finished, second.outcomes) == (first.finished, {"Submitted": 3})
    assert [known for known, _ in crew.tellers[0].asked] == [0, 2]


async def test_more_than_the_page_keeps_is_counted_once_by_minute_whoever_told_it(tmp_path: Path) -> None:
    state = NOTHING
    async with told_workers(tmp_path) as crew:
        for batch in range(3):
            for index, teller in enumerate(crew.tellers):
                teller.ended += [ended(f"{batch}-{index}-{number}") for number in range(KEPT_ENDED // 4)]
            for _ in range(2):
                status, seen = await crew.source.look()
                state = after(state, seen, status=status, now=1_800_000_000.0)
    assert len(state.ended) == KEPT_ENDED
    assert sum(minute.graded for minute in state.minutes.values()) == 6 * (KEPT_ENDED // 4)


async def test_a_worker_that_hangs_holds_up_no_news_of_the_others_and_its_trials_stay(tmp_path: Path) -> None:
    async with told_workers(tmp_path) as crew:
        crew.tellers[0].live, crew.tellers[1].live = [running("a", worker=0)], [running("b", worker=1)]
        await crew.source.look()
        crew.tellers[0].hangs, crew.tellers[1].live = True, [running("c", worker=1)]
        for _ in range(3):
            status, seen = await crew.source.look()
        assert {view.id for view in seen.live} == {"a", "c"}
        assert (status, seen.silent) == ("degraded", (0,))
        assert len(crew.tellers[0].asked) == 2  # and is not asked again while it owes an answer
        crew.tellers[0].go_on.set()
        while seen.silent:
            status, seen = await crew.source.look()
        assert status == "ok"


async def test_trials_of_a_worker_that_died_are_over_and_counted(tmp_path: Path) -> None:
    async with told_workers(tmp_path) as crew:
        crew.tellers[0].live, crew.tellers[0].ended = [running("a", worker=0)], [ended("before")]
        crew.tellers[1].live = [running("b", worker=1)]
        await crew.source.look()
        await crew.kill(0)
        seen = await crew.until("ServerError", "Submitted")
    assert [view.id for view in seen.live] == ["b"]
    lost = seen.finished[0]
    assert (lost.id, lost.cause, lost.reward, lost.phase) == ("a", WORKER_LOST, None, Phase.DONE)
    assert (seen.outcomes, seen.silent) == ({"Submitted": 1, "ServerError": 1}, (0,))


async def test_a_trial_that_ended_before_its_worker_died_is_shown_as_its_record_has_it(tmp_path: Path) -> None:
    async with told_workers(tmp_path) as crew:
        view = running("a", worker=0)
        crew.tellers[0].live = [view]
        await crew.source.look()
        path = tmp_path / "trials" / str(view.trial_name) / "run.json"
        path.parent.mkdir(parents=True)
        answer = {"reward": 0.5, "agent_metrics": {"total_time": 140.0}}
        path.write_text(json.dumps(record("task-a", answer=answer)))
        await crew.kill(0)
        seen = await crew.until("Submitted")
    assert (seen.finished[0].reward, seen.finished[0].cause, seen.finished[0].age_s) == (0.5, None, 140.0)
    assert seen.outcomes == {"Submitted": 1}


async def test_a_worker_that_came_again_tells_from_its_own_beginning(tmp_path: Path) -> None:
    async with told_workers(tmp_path) as crew:
        crew.tellers[0].live, crew.tellers[0].ended = [running("a")], [ended("x"), ended("y")]
        await crew.source.look()
        await crew.kill(0)
        crew.tellers[0].live, crew.tellers[0].ended = [running("new")], [ended("z")]
        await crew.start(0)
        seen = (await crew.source.look())[1]
        assert [known for known, _ in crew.tellers[0].asked] == [0, 0]
        assert [view.id for view in seen.live] == ["new"]
        while len(seen.finished) < 4:
            seen = (await crew.source.look())[1]
    assert {view.id for view in seen.finished} == {"x", "y", "z", "a"}
    assert seen.outcomes == {"Submitted": 3, "ServerError": 1}


async def test_a_server_that_leaves_is_draining_and_its_last_trials_were_aborted(tmp_path: Path) -> None:
    async with told_workers(tmp_path) as crew:
        crew.tellers[0].live = [running("a", Phase.QUEUED)]
        await crew.source.look()
        crew.workers.leaving = True
        await crew.kill(0)
        seen = await crew.until("Aborted")
        status, _ = await crew.source.look()
    assert (status, seen.finished[0].cause) == ("draining", "shutdown")


async def test_however_many_look_at_once_each_worker_is_asked_once_and_with_the_secret(tmp_path: Path) -> None:
    async with told_workers(tmp_path, secret="correct-horse") as crew:
        await asyncio.gather(*(crew.source.look() for _ in range(20)))
        assert [teller.asked for teller in crew.tellers] == [[(0, "Bearer correct-horse")]] * 2


async def test_what_a_worker_tells_nobody_understands_is_a_silence(tmp_path: Path) -> None:
    async with told_workers(tmp_path) as crew:
        crew.tellers[0].live = [replace(running("a"), age_s="old")]  # type: ignore[arg-type] # of another version
        status, seen = await crew.source.look()
    assert (status, seen.silent, seen.live) == ("degraded", (0,), ())
