"""What becomes of the operator when its watches break: it sees new jobs again, or ends, within two minutes.

Each fault has an operator, a namespace and a proxy of its own; all run side by side, because the slowest, a connection
that died silently, takes the 70 s after which kopf gives up on a stream without bookmarks.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harborrl_operator.cluster import Cluster
from support import hrl
from support.fault_proxy import Call, Fault, FaultProxy, fault_proxy
from support.operator_process import OperatorProcess, kubeconfig, operator_process, until

pytestmark = [pytest.mark.api, pytest.mark.processes]

LONGEST_SECONDS = 120.0
START_SECONDS = 120.0
"""A dozen Python processes at once on a machine that is busy with other things."""

Harm = Callable[[FaultProxy], Awaitable[None]]


def jobs(call: Call) -> bool:
    return call.resource == "harborrljobs.harborrl.dev" and call.verb in ("list", "watch") and not call.name


def watch_of_jobs(call: Call) -> bool:
    return jobs(call) and call.is_watch


def list_of_jobs(call: Call) -> bool:
    return jobs(call) and not call.is_watch


def watches(call: Call) -> bool:
    return call.is_watch


def next_watch(**fault: Any) -> Harm:
    """The stream of jobs ends, and the next ones meet the fault."""

    async def harm(proxy: FaultProxy) -> None:
        proxy.faults.append(Fault(watch_of_jobs, **fault))
        assert proxy.cut(watch_of_jobs) == 1

    return harm


async def mute_jobs(proxy: FaultProxy) -> None:
    assert proxy.mute(watch_of_jobs) == 1


async def mute_all(proxy: FaultProxy) -> None:
    assert proxy.mute(watches) >= 4


async def refuse_lists(proxy: FaultProxy) -> None:
    proxy.faults.append(Fault(list_of_jobs, status=500))
    await next_watch(error_event=410, times=1)(proxy)


async def swallow_a_list(proxy: FaultProxy) -> None:
    proxy.faults.append(Fault(list_of_jobs, silence=True, times=1))
    await next_watch(error_event=410, times=1)(proxy)


FAULTS: dict[str, tuple[Harm, str]] = {
    "an ERROR event 500": (next_watch(error_event=500, times=1), "ended"),
    "an ERROR event 410": (next_watch(error_event=410, times=1), "recovered"),
    "too many requests, three times": (next_watch(status=429, times=3), "recovered"),
    "a watch answered with 500, twice": (next_watch(status=500, times=2), "recovered"),
    "a watch that is never answered": (next_watch(silence=True, times=1), "recovered"),
    "a half-open watch of jobs": (mute_jobs, "recovered"),
    "every watch half-open": (mute_all, "recovered"),
    "lists that fail for good": (refuse_lists, "ended"),
    "a list that is never answered": (swallow_a_list, "recovered"),
}


@dataclass
class Outcome:
    what: str
    seconds: float


@dataclass
class Stage:
    """What a scenario needs."""

    cluster: Cluster
    kubectl: Any
    folder: Path

    async def namespace(self, name: str) -> str:
        for made in (name, f"{name}-system"):
            await self.cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": made}})
        meta = {"name": "harborrl-operator", "namespace": f"{name}-system"}
        await self.cluster.create({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta})
        return name

    async def submit(self, namespace: str, name: str) -> None:
        meta = {"name": name, "namespace": namespace}
        job = {"apiVersion": "harborrl.dev/v1alpha1", "kind": "HarborRLJob", "metadata": meta}
        await self.cluster.create(job | {"spec": hrl.QUICKSTART_SPEC})

    async def is_judged(self, namespace: str, name: str) -> bool:
        job = await self.cluster.get("HarborRLJob", namespace, name)
        return bool(job and (job.get("status") or {}).get("phase"))

    async def play(self, index: int, harm: Harm) -> Outcome:
        namespace = await self.namespace(f"watch-{index}")
        async with AsyncExitStack() as stack:
            proxy = await stack.enter_async_context(fault_proxy(self.kubectl.plane))
            process = await stack.enter_async_context(
                operator_process(
                    self.folder,
                    kubeconfig(self.folder, proxy.url),
                    name=f"op-{index}",
                    namespace=f"{namespace}-system",
                    watch_namespaces=namespace,
                )
            )
            await until(process.leads, START_SECONDS, "it leads")
            await self.submit(namespace, "before")
            await until(lambda: self.is_judged(namespace, "before"), START_SECONDS, "it watches")
            await harm(proxy)
            return await self.outcome(process, namespace)

    async def outcome(self, process: OperatorProcess, namespace: str) -> Outcome:
        begun = time.monotonic()
        await self.submit(namespace, "after")

        async def is_over() -> bool:
            return process.has_ended or await self.is_judged(namespace, "after")

        await until(is_over, LONGEST_SECONDS + 10, f"recovered or ended: {process.lines()[-5:]}")
        ended = process.has_ended and process.process.returncode
        return Outcome("ended" if ended else "recovered", time.monotonic() - begun)


async def test_after_each_fault_it_sees_new_jobs_again_or_ends_with_1_within_two_minutes(
    cluster: Cluster, kubectl: Any, tmp_path: Path
) -> None:
    stage = Stage(cluster, kubectl, tmp_path)
    played = await asyncio.gather(*(stage.play(index, harm) for index, (harm, _) in enumerate(FAULTS.values())))
    outcomes = dict(zip(FAULTS, played, strict=True))
    (tmp_path / "outcomes.json").write_text(json.dumps({name: vars(seen) for name, seen in outcomes.items()}, indent=1))
    assert {name: seen.what for name, seen in outcomes.items()} == {name: what for name, (_, what) in FAULTS.items()}
    assert [name for name, seen in outcomes.items() if seen.seconds > LONGEST_SECONDS] == []


async def test_an_api_server_that_was_away_for_half_a_minute_costs_one_restart(
    cluster: Cluster, kubectl: Any, tmp_path: Path
) -> None:
    stage = Stage(cluster, kubectl, tmp_path)
    namespace = await stage.namespace("watch-away")
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(fault_proxy(kubectl.plane))
        settings = {"namespace": f"{namespace}-system", "watch_namespaces": namespace}
        config = kubeconfig(tmp_path, proxy.url)
        first = await stack.enter_async_context(operator_process(tmp_path, config, name="first", **settings))
        await until(first.leads, START_SECONDS, "first leads")
        await proxy.go_away()
        left = time.monotonic()
        assert await first.exit_code(30) == 1
        second = await stack.enter_async_context(operator_process(tmp_path, config, name="second", **settings))
        with pytest.raises(TimeoutError):  # a process without a lease waits for its API server
            await second.exit_code(max(30 - (time.monotonic() - left), 1))
        await proxy.come_back()
        await stage.submit(namespace, "after")
        await until(lambda: stage.is_judged(namespace, "after"), LONGEST_SECONDS, "the restarted one works")
        assert len(second.lines()) < 60  # half a minute of refusals is no storm of log lines
