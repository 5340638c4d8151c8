"""When Miles is asked for a checkpoint and when it is ended, second by second."""

from pathlib import Path

import pytest

from harborrl_trainer.miles_engine import keeping
from harborrl_trainer.miles_engine.plan import Retention
from harborrl_trainer.miles_engine.stopping import GIVE_AGAIN_SECONDS, Act, Seen, Stopping


def seen(now: float = 0, **facts: object) -> Seen:
    usual: dict[str, object] = {"requested": True, "trigger": False, "sealed": 3, "trained": 5}
    return Seen(now=now, **{**usual, **facts})  # type: ignore[arg-type]  # facts of Seen


def stopping(*, has_trigger: bool = True) -> Stopping:
    return Stopping(has_trigger=has_trigger, grace_seconds=30)


def test_a_request_gives_the_trigger_once_and_ends_when_miles_has_saved_and_taken_it() -> None:
    stop = stopping()
    assert stop.step(seen(0, requested=False)) is Act.NOTHING
    assert stop.step(seen(1)) is Act.GIVE
    assert stop.step(seen(2, trigger=True)) is Act.NOTHING
    assert stop.step(seen(900, trigger=True, sealed=6, trained=6)) is Act.END_SAVED
    assert stop.step(seen(901, sealed=6, trained=6)) is Act.END_SAVED


def test_a_newer_checkpoint_counts_only_once_miles_has_removed_the_trigger() -> None:
    stop = stopping()
    assert stop.step(seen(1)) is Act.GIVE
    assert stop.step(seen(2, trigger=True, sealed=5, trained=6)) is Act.NOTHING
    assert stop.step(seen(3, sealed=5, trained=6)) is Act.END_SAVED


def test_nothing_is_waited_for_when_all_that_was_trained_is_saved() -> None:
    assert stopping().step(seen(1, sealed=5, trained=5)) is Act.END_SAVED
    assert stopping().step(seen(1, sealed=-1, trained=-1)) is Act.END_SAVED


def test_where_miles_does_not_tell_what_it_trained_a_newer_checkpoint_is_waited_for() -> None:
    stop = stopping()
    assert stop.step(seen(1, trained=None)) is Act.GIVE
    assert stop.step(seen(2, trained=None, sealed=4)) is Act.END_SAVED


def test_a_wish_that_is_taken_back_takes_the_trigger_back() -> None:
    stop = stopping()
    stop.step(seen(1))
    assert stop.step(seen(2, requested=False, trigger=True)) is Act.TAKE_BACK
    assert stop.step(seen(3, requested=False)) is Act.NOTHING
    assert stop.step(seen(4)) is Act.GIVE


def test_a_trigger_that_came_to_nothing_is_given_again_after_a_while() -> None:
    stop = stopping()
    assert stop.step(seen(1)) is Act.GIVE
    assert stop.step(seen(2)) is Act.NOTHING
    assert stop.step(seen(1 + GIVE_AGAIN_SECONDS)) is Act.GIVE


def test_without_a_trigger_the_next_periodic_checkpoint_is_waited_for() -> None:
    stop = stopping(has_trigger=False)
    assert stop.step(seen(1)) is Act.NOTHING
    assert stop.step(seen(5000)) is Act.NOTHING
    assert stop.step(seen(5001, sealed=7, trained=8)) is Act.END_SAVED


def test_a_request_has_no_limit_of_its_own_and_sigterm_has_the_grace_period() -> None:
    stop = stopping()
    stop.step(seen(0))
    assert stop.step(seen(10_000, trigger=True)) is Act.NOTHING
    stop.tell(10_000)
    # The request has waited longer than that already: its supervisor has given it up.
    assert stop.step(seen(10_001, trigger=True)) is Act.END_UNSAVED


def test_sigterm_alone_waits_for_the_grace_period_and_then_ends_miles() -> None:
    stop = stopping()
    stop.tell(100)
    assert stop.step(seen(100, requested=False)) is Act.GIVE
    assert stop.step(seen(129, requested=False, trigger=True)) is Act.NOTHING
    assert stop.step(seen(130, requested=False, trigger=True)) is Act.END_UNSAVED


# Which checkpoints stay.

OLDER = ((1, "/a/iter_1"), (3, "/a/iter_3"))


@pytest.mark.parametrize(
    ("keep", "own", "loaded", "gone"),
    [
        (2, [], "/a/iter_3", []),
        (2, [(5, "/b/iter_5")], "/a/iter_3", ["/a/iter_1", "/a/torn"]),
        (1, [(5, "/b/iter_5")], "/a/iter_3", ["/a/iter_1", "/a/torn"]),
        (1, [(5, "/b/iter_5"), (7, "/b/iter_7")], "", ["/a/iter_1", "/a/iter_3", "/b/iter_5", "/a/torn"]),
        (9, [(5, "/b/iter_5")], "", ["/a/torn"]),
    ],
)
def test_the_newest_stay_and_so_does_what_miles_loads_from(
    keep: int, own: list[tuple[int, str]], loaded: str, gone: list[str]
) -> None:
    rule = Retention(keep=keep, older=OLDER, loaded=loaded, leftovers=("/a/torn",))
    assert keeping.to_remove(rule, own) == gone


def test_an_overtaken_incarnation_and_one_without_an_index_remove_nothing(tmp_path: Path) -> None:
    index = tmp_path / "index.json"
    assert keeping.overtaken(index, 1, 1)
    index.write_text('{"claims": [{"attempt": 1, "incarnation": 2}]}')
    assert keeping.overtaken(index, 1, 1)
    assert not keeping.overtaken(index, 1, 2)
    assert not keeping.overtaken(index, 2, 1)
