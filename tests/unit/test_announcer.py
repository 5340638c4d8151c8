"""Events and log lines of a job that goes wrong again and again stay few."""

import json
import logging
from datetime import datetime, timedelta
from typing import Any

import pytest
from kubernetes.aio import client

from harborrl_operator.announcer import BURST, Announcer
from harborrl_operator.cluster import Cluster
from harborrl_operator.constants import Reason
from harborrl_operator.reconcile import Reconciler
from harborrl_operator.transitions import Transition
from harborrl_operator.transport import Answer, Request
from harborrl_operator.work_queue import WorkQueue
from support import hrl


class Store:
    """An API server that knows one job and the sandbox namespace, keeps status and events, and breaks as told."""

    def __init__(self) -> None:
        job = hrl.job()
        spec = job.spec.model_dump(by_alias=True, exclude_none=True, mode="json")
        meta = {"name": job.name, "namespace": job.namespace, "uid": job.uid, "generation": 1, "resourceVersion": "1"}
        self.job: dict[str, Any] = {"metadata": meta, "spec": spec, "status": {}}
        self.events: dict[str, dict[str, Any]] = {}
        self.writes = 0
        self.broken: dict[str, Answer] = {}

    async def send(self, request: Request) -> Answer:
        if request.kind in self.broken:
            return self.broken[request.kind]
        if request.kind == "Event" and request.verb == "create":
            return self._event(dict(request.body or {}))
        if request.path.endswith("/status"):
            self.writes += 1
            self.job["status"] = dict(request.body or {})["status"]
            return Answer(200, json.dumps(self.job))
        if request.verb == "list":
            return Answer(200, json.dumps({"items": []}))
        if request.verb != "get":
            return Answer(200, "{}")
        found = {"HarborRLJob": self.job, "Namespace": hrl.SANDBOXES, "PersistentVolumeClaim": hrl.claim()}
        return Answer(200, json.dumps(found[request.kind])) if request.kind in found else Answer(404, "{}")

    def _event(self, event: dict[str, Any]) -> Answer:
        name = event["metadata"]["name"]
        if name in self.events:
            return Answer(409, json.dumps({"message": "there is one"}))
        self.events[name] = event
        return Answer(201, json.dumps(event))

    def cluster(self) -> Cluster:
        return Cluster(client.ApiClient.__new__(client.ApiClient), self.send)


class Clock:
    def __init__(self) -> None:
        self.now = hrl.NOW

    def __call__(self) -> datetime:
        return self.now

    def passes(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


async def hundred_passes(store: Store, clock: Clock) -> None:
    """By the real queue's own rules for a pass that fails, on a clock that does not wait."""
    job = hrl.job()
    reconciler = Reconciler(store.cluster(), hrl.SETTINGS, clock)
    queue = WorkQueue(lambda key: reconciler.reconcile(*key))
    for _ in range(100):
        await queue.once((job.namespace, job.name))
        clock.passes(30)


async def test_a_bug_that_breaks_each_pass_is_one_event_one_status_and_few_log_lines(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = Store()
    store.broken["PersistentVolumeClaim"] = Answer(200, json.dumps({"metadata": {"name": "harborrl-data"}}))  # no spec
    with caplog.at_level(logging.INFO):
        await hundred_passes(store, Clock())
    assert [event["reason"] for event in store.events.values()] == [Reason.OPERATOR_ERROR]
    assert store.writes == 1
    conditions = {c["type"]: (c["status"], c["reason"]) for c in store.job["status"]["conditions"]}
    assert conditions["Progressing"] == ("Unknown", Reason.OPERATOR_ERROR)
    assert len(caplog.records) <= 10


async def test_a_refusal_in_each_pass_is_one_event_and_no_log_lines(caplog: pytest.LogCaptureFixture) -> None:
    store = Store()
    store.broken["Deployment"] = Answer(403, json.dumps({"message": "exceeded quota: none"}))
    with caplog.at_level(logging.INFO):
        await hundred_passes(store, Clock())
    assert sum(event["type"] == "Warning" for event in store.events.values()) == 1
    assert len(caplog.records) <= 10


async def test_a_pass_that_works_again_takes_the_fault_back() -> None:
    store, clock = Store(), Clock()
    reconciler = Reconciler(store.cluster(), hrl.SETTINGS, clock)
    store.broken["PersistentVolumeClaim"] = Answer(200, "{}")
    with pytest.raises(KeyError):
        await reconciler.reconcile("research", "quickstart")
    store.broken.clear()
    await reconciler.reconcile("research", "quickstart")
    reasons = {condition["reason"] for condition in store.job["status"]["conditions"]}
    assert Reason.OPERATOR_ERROR not in reasons
    assert store.job["status"]["phase"] == "StartingAgentServer"


async def test_the_same_words_are_said_again_after_an_hour_and_not_before_also_by_another_operator() -> None:
    store, clock = Store(), Clock()
    words = Transition("Warning", "Unschedulable", "no node fits")
    for _ in range(3):
        await Announcer(store.cluster(), clock).say(hrl.job(), words)
        clock.passes(60)
    assert len(store.events) == 1
    clock.passes(3600)
    await Announcer(store.cluster(), clock).say(hrl.job(), words)
    assert len(store.events) == 2


async def test_words_that_change_each_time_are_cut_off_by_the_jobs_budget() -> None:
    store, clock = Store(), Clock()
    announcer = Announcer(store.cluster(), clock)
    for second in range(100):
        await announcer.say(hrl.job(), Transition("Warning", "PodFailed", f"attempt {second}"))
        clock.passes(1)
    assert len(store.events) == BURST
    clock.passes(900)
    for second in range(100):
        await announcer.say(hrl.job(), Transition("Warning", "PodFailed", f"later {second}"))
    assert len(store.events) == BURST + 3
