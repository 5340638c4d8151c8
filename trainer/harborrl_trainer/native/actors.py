"""The two Ray actors: the policy on the driver's node, the rollout engine on another where there is one."""

import asyncio
import os
import shutil
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import ray
import torch
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from transformers.utils import logging as transformers_logging

from harborrl_trainer.errors import InfrastructureError
from harborrl_trainer.native.checkpoint import OPTIMIZER
from harborrl_trainer.native.decoder import load_decoder
from harborrl_trainer.native.engine import Engine, Request
from harborrl_trainer.native.policy import PolicyConfig, StepReport, TrainSample, load_policy
from harborrl_trainer.native.precision import ComputeType
from harborrl_trainer.native.sampling import SamplingParams
from harborrl_trainer.native.session import Generation
from harborrl_trainer.writing import writing

ACTOR_ENVIRONMENT = {
    # libgomp's threads spin at each barrier; with two cores shared by other pods that burns what the others need.
    "GOMP_SPINCOUNT": "0",
}
TOKENIZER_FILES = ("tokenizer*", "special_tokens_map.json", "chat_template*", "vocab.*", "merges.txt")


class EngineActor:
    """Async methods around the engine's thread; one call of `generate` a running request."""

    def __init__(self, model: str, *, slots: int, capacity: int, compute: ComputeType, stop: frozenset[int]) -> None:
        _prepare_process()
        self._log: list[dict[str, Any]] = []
        decoder = load_decoder(model, slots=slots, capacity=capacity, compute=compute)
        self._engine = Engine(decoder, slots=slots, stop_tokens=stop)

    async def generate(self, request_id: str, prompt: list[int], params: SamplingParams) -> Generation:
        result: asyncio.Future[Generation] = asyncio.get_running_loop().create_future()
        self._engine.submit(Request(request_id, tuple(prompt), params, _to(result)))
        answer = await result
        self._log.append(
            {
                "request_id": request_id,
                "prompt_tokens": len(prompt),
                "token_ids": list(answer.token_ids),
                "log_probs": list(answer.log_probs),
                "finish_reason": answer.finish_reason,
                "weight_version": answer.weight_version,
            }
        )
        return answer

    async def load(self, weights: Mapping[str, torch.Tensor], version: int) -> None:
        result: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._engine.load(weights, version, _to(result))
        await result

    async def drain_log(self) -> list[dict[str, Any]]:
        """What was sampled since the last call, by request: the engine's own account, independent of any session."""
        log, self._log = self._log, []
        return log


class PolicyActor:
    """Calls run on several threads, so that `interrupt` is heard while `train` works; the lock keeps the rest apart."""

    def __init__(self, model: str, config: PolicyConfig, *, reference: str, optimizer: str | None) -> None:
        _prepare_process()
        self._lock = threading.Lock()
        self._policy = load_policy(model, config, reference=reference)
        if optimizer:
            self._policy.restore_optimizer(torch.load(optimizer, weights_only=True, mmap=True))

    def train(self, samples: list[TrainSample]) -> StepReport:
        with self._lock:
            return self._policy.train(samples)

    def interrupt(self) -> None:
        """Makes a `train` that has not yet changed the weights raise Interrupted between two micro-batches."""
        self._policy.interrupted.set()

    def weights(self) -> dict[str, torch.Tensor]:
        with self._lock:
            return self._policy.weights()

    def save(self, directory: str, *, tokenizer_from: str, with_optimizer: bool) -> None:
        """StorageError when the volume does not take it; told here, since torch's own words do not say so."""
        target = Path(directory)
        with writing(target):
            with self._lock:
                self._policy.model.save_pretrained(target)
                if with_optimizer:
                    torch.save(self._policy.optimizer.state_dict(), target / OPTIMIZER)
            for pattern in TOKENIZER_FILES:
                for path in Path(tokenizer_from).glob(pattern):
                    shutil.copy(path, target / path.name)


async def await_nodes(
    expected: int,
    stop: asyncio.Event,
    *,
    timeout_s: float,
    count: Callable[[], int] | None = None,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Until `expected` nodes have joined: the head's driver starts before its workers, and placing waits for no one.

    Ends early when `stop` is set. Raises InfrastructureError after `timeout_s` seconds, naming how many came.
    """
    count = count or _alive
    deadline = clock() + timeout_s
    while (joined := count()) < expected and not stop.is_set():
        if clock() > deadline:
            raise InfrastructureError(
                f"Ray: {joined} of {expected} nodes joined within {timeout_s:g} s; look at the trainer's worker pods"
            )
        await pause(1.0)


def _alive() -> int:
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]  # Ray leaves it without types
    return sum(bool(node["Alive"]) for node in nodes)


def start_engine(**arguments: Any) -> Any:
    """A handle of an EngineActor on a node that is not the driver's, or on that one where it is alone."""
    here = ray.get_runtime_context().get_node_id()
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]  # Ray leaves it without types
    others = sorted(node["NodeID"] for node in nodes if node["Alive"] and node["NodeID"] != here)
    return _start(EngineActor, (others or [here])[0], max_concurrency=1000, **arguments)


def start_policy(**arguments: Any) -> Any:
    return _start(PolicyActor, ray.get_runtime_context().get_node_id(), max_concurrency=4, **arguments)


def _start(actor: type, node: str, *, max_concurrency: int, **arguments: Any) -> Any:
    # No CPU is asked for: placement is by node, and KubeRay heads often declare none.
    options: dict[str, Any] = {
        "num_cpus": 0,
        "max_concurrency": max_concurrency,
        "scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False),
        "runtime_env": {"env_vars": ACTOR_ENVIRONMENT},
    }
    return ray.remote(actor).options(**options).remote(**arguments)


def _to(future: "asyncio.Future[Any]") -> Callable[[Any], None]:
    """A callback for another thread that settles the future on its own loop; an exception becomes its error."""
    loop = future.get_loop()

    def settle(value: Any) -> None:
        if future.done():
            return
        if isinstance(value, Exception):
            future.set_exception(value)
        else:
            future.set_result(value)

    def from_thread(value: Any) -> None:
        loop.call_soon_threadsafe(settle, value)

    return from_thread


def _prepare_process() -> None:
    """As many threads as this container may use: Ray sets OMP_NUM_THREADS to 1, and the host's count is not ours.

    No progress bars: Ray copies them into the driver's log, where the last line has to be a sentence for a person.
    """
    torch.set_num_threads(available_cpus())
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # transformers leaves it without types


def available_cpus() -> int:
    allowed = len(os.sched_getaffinity(0))
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
    except (OSError, ValueError):
        return allowed
    return allowed if quota == "max" else max(1, min(allowed, round(int(quota) / int(period))))
