"""Whole lives of a queued gang on an API server that loses writes and whose clock is another.

A decision is made again by the next pass until it is written, and what it deletes is deleted until it is gone.
"""

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from support.gang import KEPT, LOST, REFUSED, Gang

EVENTS = ("come up", "start", "fail", "lose head", "preempt", "obey", "suspend", "take back")
writes = st.sampled_from([KEPT, KEPT, KEPT, LOST, REFUSED])
steps = st.tuples(st.sampled_from(EVENTS), st.booleans(), writes, writes, st.integers(0, 40))
"""What happens, whether a pass follows, what becomes of its status and of its deletions, seconds until the next."""
histories = st.lists(steps, min_size=3, max_size=25)


async def happens(gang: Gang, event: str) -> None:
    match event:
        case "come up":
            await gang.children_come_up()
        case "start":
            gang.supervisor_starts()
        case "fail":
            gang.driver_fails()
        case "lose head":
            gang.head_is_lost()
        case "preempt":
            await gang.is_preempted_and_admitted_again()
        case "obey":
            gang.driver_obeys()
        case _:
            gang.suspend(event == "suspend")


def is_settled(gang: Gang) -> bool:
    """A pass has seen a gang that is whole and trains, and no write of the operator's is owed."""
    status, head = gang.job.get("status") or {}, gang.head()
    uid = head["metadata"]["uid"] if head is not None else None
    trainer = status.get("trainer") or {}
    knows_it = (trainer.get("headUid"), trainer.get("endingPods")) == (uid, [])
    is_live = all(gang.is_live(pod) for pod in gang.pods()) and len(gang.pods()) == 2
    runs = uid is not None and uid not in gang.ended and status.get("incarnation") == gang.incarnations.get(uid)
    return status.get("phase") == "Running" and knows_it and is_live and runs


async def settle(gang: Gang) -> None:
    """Nothing is lost any more, nothing fails."""
    gang.suspend(False)
    for _ in range(40):
        if is_settled(gang):
            return
        await gang.children_come_up()
        gang.supervisor_starts()
        await gang.look()
        gang.seconds += 10


async def live(gang: Gang, history: list[tuple[str, bool, str, str, int]]) -> None:
    await settle(gang)
    assert is_settled(gang)
    for event, is_seen, status, delete, seconds in history:
        await happens(gang, event)
        if is_seen:
            await gang.look(status, delete)
        gang.seconds += seconds


@given(history=histories, skew=st.integers(-3, 3), same_name=st.booleans())
@settings(max_examples=150, deadline=None)
def test_whatever_is_lost_no_budget_is_charged_without_a_failure_and_the_run_goes_on(
    history: list[tuple[str, bool, str, str, int]], skew: int, same_name: bool
) -> None:
    async def life() -> None:
        gang = Gang(skew, same_name=same_name)
        await live(gang, history)
        await settle(gang)
        status = gang.job["status"]
        charged = (status.get("failures") or {}).get("infrastructure", 0)
        assert charged <= gang.failures
        assert gang.wrongly_deleted == []
        assert is_settled(gang)
        assert status.get("finishedAt") is None

    asyncio.run(life())
