"""Which warm pods are made and which go, for any state of the pool."""

import copy
from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from harborrl_agent_server.sandboxes.pods import IMAGE_ASKED
from harborrl_agent_server.sandboxes.warm_plan import (
    WARM_LABEL,
    Plan,
    Rules,
    Shelf,
    Stage,
    Use,
    WarmPod,
    decide,
    key_of,
    poolable,
    served,
    taking,
    warm_manifest,
)

KEYS = ["a", "b", "c", "d", "e"]
RULES = Rules(size=2, images=2)

rules = st.builds(
    Rules, size=st.integers(1, 4), images=st.integers(1, 4), starts_at_once=st.integers(1, 4), age_s=st.just(100.0)
)
uses = st.dictionaries(
    st.sampled_from(KEYS), st.builds(Use, idle_s=st.floats(0, 2000), paused=st.booleans()), max_size=5
)


@st.composite
def shelves(draw: st.DrawFn) -> Shelf:
    pods = draw(
        st.lists(
            st.tuples(st.sampled_from(KEYS), st.sampled_from(Stage), st.floats(0, 200)),
            max_size=12,
        )
    )
    return Shelf(
        pods=tuple(WarmPod(f"pod-{index}", *pod) for index, pod in enumerate(pods)),
        uses=draw(uses),
        free_slots=draw(st.integers(-2, 12)),
        pressed=draw(st.booleans()),
    )


def after(shelf: Shelf, plan: Plan, round_: int = 0) -> Shelf:
    """The pool once a plan is done, its new pods on their way."""
    made = (WarmPod(f"new-{round_}-{index}", key, Stage.STARTING, 0) for index, key in enumerate(plan.create))
    kept = (pod for pod in shelf.pods if pod.name not in plan.delete)
    return Shelf((*kept, *made), shelf.uses, shelf.free_slots, shelf.pressed)


def started(shelf: Shelf) -> Shelf:
    pods = (WarmPod(pod.name, pod.key, Stage.READY, pod.age_s) for pod in shelf.pods)
    return Shelf(tuple(pods), shelf.uses, shelf.free_slots, shelf.pressed)


@given(shelves(), rules)
def test_the_pool_never_passes_the_free_slots_by_more_than_the_size_of_one_image(shelf: Shelf, rules: Rules) -> None:
    assert len(after(shelf, decide(shelf, rules)).pods) <= max(shelf.free_slots, 0) + rules.size


@given(shelves(), rules)
def test_no_image_has_more_than_its_size_and_no_more_images_have_any_than_allowed(shelf: Shelf, rules: Rules) -> None:
    count = Counter(pod.key for pod in after(shelf, decide(shelf, rules)).pods)
    assert len(count) <= rules.images
    assert all(number <= rules.size for number in count.values())


@given(shelves(), rules)
def test_what_is_dead_old_or_of_an_unused_image_goes(shelf: Shelf, rules: Rules) -> None:
    left = after(shelf, decide(shelf, rules)).pods
    assert all(pod.stage is not Stage.DEAD and pod.age_s <= rules.age_s for pod in left)
    assert all(shelf.uses[pod.key].idle_s <= rules.idle_s for pod in left)


@given(shelves(), rules)
def test_creations_in_flight_are_bounded(shelf: Shelf, rules: Rules) -> None:
    plan = decide(shelf, rules)
    starting = sum(pod.stage is Stage.STARTING for pod in after(shelf, plan).pods)
    assert not plan.create or starting <= rules.starts_at_once


@given(shelves(), rules)
def test_a_pool_under_pressure_gives_everything_up_and_makes_nothing(shelf: Shelf, rules: Rules) -> None:
    pressed = Shelf(shelf.pods, shelf.uses, shelf.free_slots, pressed=True)
    assert decide(pressed, rules) == Plan((), tuple(pod.name for pod in shelf.pods))


@given(shelves(), rules)
def test_nothing_is_made_for_an_image_that_did_not_start_a_moment_ago(shelf: Shelf, rules: Rules) -> None:
    assert not any(shelf.uses[key].paused for key in decide(shelf, rules).create)


@given(shelves(), rules)
def test_plans_come_to_rest_with_the_room_used_by_the_images_used_last(shelf: Shelf, rules: Rules) -> None:
    for round_ in range(40):
        plan = decide(shelf, rules)
        if plan == Plan():
            break
        shelf = started(after(shelf, plan, round_))
    assert decide(shelf, rules) == Plan()
    count = Counter(pod.key for pod in shelf.pods)
    room = 0 if shelf.pressed else max(shelf.free_slots, 0) + rules.size
    for key in served(shelf.uses, rules):
        assert shelf.uses[key].paused or count[key] == min(rules.size, room)
        room -= count[key]


def test_a_ready_pod_outlives_one_that_starts_and_a_young_one_an_old_one() -> None:
    pods = (
        WarmPod("old", "a", Stage.READY, 50),
        WarmPod("young", "a", Stage.READY, 5),
        WarmPod("starting", "a", Stage.STARTING, 1),
    )
    shelf = Shelf(pods, {"a": Use(0)}, free_slots=9)
    assert decide(shelf, Rules(size=1, images=1)).delete == ("old", "starting")


def test_an_image_that_is_used_again_takes_the_place_of_the_one_unused_longest() -> None:
    pods = tuple(WarmPod(f"{key}{index}", key, Stage.READY, 9) for key in "ab" for index in range(2))
    shelf = Shelf(pods, {"a": Use(30), "b": Use(20), "c": Use(0)}, free_slots=9)
    assert decide(shelf, RULES) == Plan(create=("c", "c"), delete=("a0", "a1"))


def manifest(**changes: Any) -> dict[str, Any]:
    labels = {"harborrl.dev/trial": "run-1", "harborrl.dev/sandbox": "sb-1", "harborrl.dev/role": "sandbox"}
    spec = {"activeDeadlineSeconds": 100, "containers": [{"name": "main", "image": "image:1"}], **changes}
    return {"metadata": {"name": "sb-1", "labels": labels}, "spec": spec}


def test_two_trials_of_one_image_share_a_key_and_what_cannot_change_later_parts_them() -> None:
    other = copy.deepcopy(manifest())
    other["metadata"]["name"] = "sb-2"
    other["metadata"]["labels"] |= {"harborrl.dev/trial": "run-2", "harborrl.dev/sandbox": "sb-2"}
    assert key_of(manifest()) == key_of(other)
    changes: list[dict[str, Any]] = [{"nodeSelector": {"zone": "a"}}, {"activeDeadlineSeconds": 99}, {"containers": []}]
    for change in changes:
        assert key_of(manifest(**change)) != key_of(manifest())
    other["metadata"]["labels"]["harborrl.dev/network"] = "none"
    assert key_of(other) != key_of(manifest())


def test_a_trial_takes_what_was_made_before_its_image_was_pinned() -> None:
    asked, pinned, other = manifest(), manifest(), manifest()
    pinned["spec"]["containers"][0]["image"] = "image@sha256:0"
    for one in (asked, pinned):
        one["metadata"]["annotations"] = {IMAGE_ASKED: "image:1"}
    other["metadata"]["annotations"] = {IMAGE_ASKED: "image:2"}
    assert key_of(asked) == key_of(pinned) != key_of(other)
    assert warm_manifest(pinned, "warm")["spec"]["containers"][0]["image"] == "image@sha256:0"


def test_a_warm_pod_is_nobodys_and_lives_a_whole_trial_after_its_wait() -> None:
    trial = manifest()
    warm = warm_manifest(trial, "sb-warm-1")
    assert warm["metadata"]["name"] == "sb-warm-1"
    assert warm["metadata"]["labels"] == {"harborrl.dev/role": "sandbox", WARM_LABEL: key_of(trial)}
    assert warm["spec"]["activeDeadlineSeconds"] == 3700
    assert trial == manifest()


def test_taking_a_warm_pod_gives_it_the_labels_of_its_trial_alone() -> None:
    warm = warm_manifest(manifest(), "sb-warm-1")["metadata"]["labels"]
    taken = {name: value for name, value in (warm | taking(manifest())).items() if value is not None}
    assert taken == manifest()["metadata"]["labels"]


def test_a_pod_with_a_policy_of_its_own_is_never_from_the_pool() -> None:
    restricted = manifest()
    for network, is_poolable in (("none", True), ("allowlist", False)):
        restricted["metadata"]["labels"]["harborrl.dev/network"] = network
        assert poolable(restricted) is is_poolable
    assert poolable(manifest())
