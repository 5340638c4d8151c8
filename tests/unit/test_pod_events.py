"""A gang that starts asks for few passes, and a pod that changes alone for one at once."""

import copy
from typing import Any

from harborrl_operator.pod_events import GANG_SETTLE_SECONDS, PodEvents
from harborrl_operator.work_queue import SETTLE_SECONDS
from support import hrl

JOB = ("research", "quickstart")


def changed(pod: dict[str, Any], **status: Any) -> dict[str, Any]:
    new = copy.deepcopy(pod)
    new["status"] |= status
    new["metadata"]["resourceVersion"] = "2"
    return new


def test_the_first_event_of_a_gang_is_heard_at_once_and_those_of_the_same_burst_together() -> None:
    events = PodEvents()
    pods = [hrl.trainer_pod(f"worker-{index}") for index in range(512)]
    delays = [events.delay(JOB, pod, 100 + index / 1000, is_deleted=False) for index, pod in enumerate(pods)]
    assert delays == [SETTLE_SECONDS] + [GANG_SETTLE_SECONDS] * 511


def test_a_head_that_ends_after_a_silence_is_heard_at_once() -> None:
    events, head = PodEvents(), hrl.trainer_pod("head")
    events.delay(JOB, head, 100, is_deleted=False)
    ended = changed(head, phase="Failed")
    assert events.delay(JOB, ended, 100 + GANG_SETTLE_SECONDS, is_deleted=False) == SETTLE_SECONDS
    assert events.delay(JOB, ended, 200, is_deleted=True) == SETTLE_SECONDS


def test_two_jobs_do_not_wait_for_each_other() -> None:
    events = PodEvents()
    events.delay(JOB, hrl.trainer_pod("head"), 100, is_deleted=False)
    other = hrl.trainer_pod("head", attempt=2)
    assert events.delay(("research", "other"), other, 100, is_deleted=False) == SETTLE_SECONDS


def test_what_no_decision_looks_at_asks_for_no_pass() -> None:
    events, pod = PodEvents(), hrl.trainer_pod("head")
    events.delay(JOB, pod, 100, is_deleted=False)
    unread = [*pod["status"]["conditions"], {"type": "Initialized", "status": "True"}]
    assert events.delay(JOB, changed(pod, podIP="10.0.0.7", conditions=unread), 200, is_deleted=False) is None
    not_ready = [{"type": "Ready", "status": "False"}]
    assert events.delay(JOB, changed(pod, conditions=not_ready), 200, is_deleted=False) == SETTLE_SECONDS


def test_a_watch_that_begins_anew_and_shows_what_is_known_asks_for_no_pass() -> None:
    events, pod = PodEvents(), hrl.trainer_pod("head")
    events.delay(JOB, pod, 100, is_deleted=False)
    assert events.delay(JOB, copy.deepcopy(pod), 200, is_deleted=False) is None
