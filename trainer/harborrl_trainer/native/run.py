"""`engine: native`: from the job document to a running training loop, and from its end to an exit code."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import ray
from transformers import AutoTokenizer, GenerationConfig

from harborrl_trainer import checkpoints, dumps, leftovers
from harborrl_trainer.checkpoints import StartPoint
from harborrl_trainer.errors import FINISHED, STOPPED, ConfigurationError, InfrastructureError, StorageError
from harborrl_trainer.job import Data, JobDocument, TrainingConfig
from harborrl_trainer.layout import IncarnationId, IncarnationLayout, RunLayout
from harborrl_trainer.native import actors, checkpoint
from harborrl_trainer.native.chat import ChatRenderer, TemplateNotAppendOnly
from harborrl_trainer.native.collect import Collector
from harborrl_trainer.native.loop import Stopped, Trainer
from harborrl_trainer.native.policy import PolicyConfig
from harborrl_trainer.native.precision import ComputeType, best_compute_type
from harborrl_trainer.native.serving import serving
from harborrl_trainer.native.session_server import SessionStore, build_app
from harborrl_trainer.prompt_rows import Prompt
from harborrl_trainer.prompts import read_prompts
from harborrl_trainer.rollout.agent_client import AgentClient, AgentServerError, Health
from harborrl_trainer.rollout.inflight import InFlight, follow_capacity, width_for
from harborrl_trainer.rollout.trial_log import TrialLog

EPS_HIGH_EXTRA = 0.08
"""The upper side of the clip interval is wider than `epsClip` by this: 0.2 gives the 0.28 of Miles' launchers."""
CAPACITY_POLL_S = 5.0
STOP_POLL_S = 1.0
AGENT_SERVER_WAIT_S = 60.0
NODES_WAIT_S = 300.0
"""For the other pods of a cluster whose head is up: an image pull and Ray's start."""
ENGINE_SLOTS = 64


def main(job: JobDocument, attempt: int, incarnation: int, *, compute: ComputeType | None = None) -> int:
    """Trains until the last rollout. Returns 0, or 75 after a stop request; raises a TrainerError for all else.

    `compute` overrides what suits this processor.
    """
    prompts = _prompts(job.data, "data")
    eval_prompts = _prompts(Data(jsonl=job.eval.jsonl), "eval") if job.eval else []
    start = begin(job, attempt, incarnation)
    layout = RunLayout.of(job).incarnation(attempt, incarnation)
    for folder in (layout.checkpoints, layout.rollout_data, layout.train_data, layout.trials):
        folder.mkdir(parents=True, exist_ok=True)
    try:
        asyncio.run(
            _run(
                job,
                layout,
                start,
                prompts=prompts,
                eval_prompts=eval_prompts,
                compute=compute or best_compute_type(),
            )
        )
    except Stopped:
        sys.stderr.write("native engine: stopped on request; the next incarnation goes on from the newest checkpoint\n")
        return STOPPED
    return FINISHED


async def _run(
    job: JobDocument,
    layout: IncarnationLayout,
    start: StartPoint,
    *,
    prompts: Sequence[Prompt],
    eval_prompts: Sequence[Prompt],
    compute: ComputeType,
) -> None:
    stop = _stop_on_signal()
    _connect()
    renderer, stop_tokens = _tokenizer(job)
    await _nodes_joined(job, stop)
    policy, engine = _start_actors(job, start, compute, stop_tokens)
    store = _store(job, renderer, engine)
    client = _client(job)
    log = TrialLog(layout.trials / "native.jsonl")
    async with serving(build_app(store), job.ports.session) as port, _background() as background:
        places = InFlight(width_for(await _healthy(client), held=0))
        background(follow_capacity(places, _Capacity(client, places).health, _pause(CAPACITY_POLL_S)))
        background(watch_stop_request(layout.stop_request, stop))
        trainer = Trainer(
            job=job,
            layout=layout,
            prompts=prompts,
            eval_prompts=eval_prompts,
            policy=policy,
            engine=engine,
            collector=Collector(job, store, client, places, log, f"{job.trainer_host}:{port}", time.monotonic),
            stop=stop,
            trained=start.first_rollout,
            saved=start.first_rollout,
            drawn=checkpoint.prompts_drawn(start, job.config.rollout_batch_size),
            judged=already_judged(job, start),
        )
        try:
            await trainer.run()
        finally:
            await _leave(client, store)
            log.close()


def _stop_on_signal() -> asyncio.Event:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


def _store(job: JobDocument, renderer: ChatRenderer, engine: Any) -> SessionStore:
    return SessionStore(
        renderer=renderer,
        generate=engine.generate.remote,
        max_seq_len=job.max_seq_len,
        max_response=job.config.rollout_max_response_len,
    )


def _client(job: JobDocument) -> AgentClient:
    return AgentClient(
        job.agent_server.url,
        ceiling_s=job.rollout.agent_trial_timeout_seconds,
        admin_secret=os.environ.get("HARBOR_ADMIN_SECRET"),
    )


def _prompts(source: Data, name: str) -> list[Prompt]:
    found = read_prompts(source)
    if not found.prompts:
        reason = f"; the first bad row: {found.bad_rows[0].where} {found.bad_rows[0].problem}" if found.bad_rows else ""
        raise ConfigurationError(f"{name}: there is no usable prompt{reason}; add rows or tasks")
    return list(found.prompts)


def begin(job: JobDocument, attempt: int, incarnation: int) -> StartPoint:
    """Claims the rollout ids from the newest checkpoint that is whole and undamaged; says where it begins."""
    run = RunLayout.of(job)
    for path in leftovers.clear(run, IncarnationId(attempt, incarnation)):  # before the claim, which needs room
        sys.stdout.write(f"removed {path}: a save that was cut off\n")
    damaged = []
    while (start := checkpoints.find_start(job)).checkpoint and (damage := checkpoint.problem(start.checkpoint)):
        if not start.checkpoint.is_relative_to(run.checkpoints):
            raise StorageError(f"resumeFrom: checkpoint {start.checkpoint} {damage}; restore it or name another one")
        sys.stdout.write(f"checkpoint {start.checkpoint} {damage}: set aside, falling back to the one before\n")
        checkpoint.set_aside(start, damage)
        damaged.append(start.checkpoint)
    own = start.checkpoint is not None and start.checkpoint.is_relative_to(run.checkpoints)
    if not own and checkpoint.were_set_aside(run):
        raise StorageError(
            f"{run.checkpoints}: every checkpoint of this run is damaged; restore one, or delete the job and apply it "
            "again to begin anew"
        )
    warm = start.checkpoint is not None and (start.checkpoint / checkpoint.OPTIMIZER).exists()
    start = checkpoints.begin(job, attempt, incarnation, optimizer=warm, set_aside=damaged)
    origin = f"checkpoint {start.checkpoint}" if start.checkpoint else f"the model {job.model.path}"
    cold = "" if start.checkpoint is None or warm else ", optimizer cold"
    sys.stdout.write(f"starting at rollout {start.first_rollout} from {origin}{cold}\n")
    return start


def already_judged(job: JobDocument, start: StartPoint) -> bool:
    """Whether these weights have been evaluated, by the incarnation that saved them or by one that began with them."""
    run = RunLayout.of(job)
    saved_by = [found.id for found in checkpoints.list_checkpoints(run.checkpoints) if found.path == start.checkpoint]
    since = max(saved_by, default=IncarnationId(0, 0))
    found = dumps.scan_run(run.traces)
    return any(start.first_rollout in own.evaluated for id_, own in found.items() if id_ >= since)


def _connect() -> None:
    """To the cluster that RAY_ADDRESS names, as in every job that Ray runs; a test may have connected already."""
    if ray.is_initialized():
        return
    try:
        ray.init(log_to_driver=True, include_dashboard=False, configure_logging=False)
    except (ConnectionError, OSError, RuntimeError) as error:
        raise InfrastructureError(f"Ray: cannot connect ({error}); look at the head pod") from error


def _tokenizer(job: JobDocument) -> tuple[ChatRenderer, frozenset[int]]:
    path = str(job.model.path)
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(path)
        renderer = ChatRenderer(tokenizer, {"enable_thinking": job.config.enable_thinking})
    except (OSError, ValueError, TemplateNotAppendOnly) as error:
        raise ConfigurationError(
            f"model.path: {path} has no tokenizer with a usable chat template ({error}); "
            "put the tokenizer's files beside the weights"
        ) from error
    return renderer, stop_tokens(job.model.path, tokenizer.eos_token_id)


def stop_tokens(model: Path, of_tokenizer: int | None) -> frozenset[int]:
    """Tokens that end a turn: the tokenizer's, and those of generation_config.json, which a model may lack."""
    said = None
    if (model / "generation_config.json").exists():
        try:
            said = GenerationConfig.from_pretrained(str(model)).eos_token_id
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"model.path: {model}/generation_config.json cannot be read ({error}); repair it"
            ) from error
    found = [said] if isinstance(said, int) else list(said or ())
    if of_tokenizer is not None:
        found.append(of_tokenizer)
    if not found:
        raise ConfigurationError(
            f"model.path: neither tokenizer nor generation_config.json of {model} names an end token; set eos_token"
        )
    return frozenset(found)


async def _nodes_joined(job: JobDocument, stop: asyncio.Event) -> None:
    await actors.await_nodes(job.nodes, stop, timeout_s=NODES_WAIT_S)
    if stop.is_set():
        raise Stopped


def _start_actors(
    job: JobDocument, start: StartPoint, compute: ComputeType, stop_tokens: frozenset[int]
) -> tuple[Any, Any]:
    optimizer = start.checkpoint / checkpoint.OPTIMIZER if start.checkpoint else None
    policy = actors.start_policy(
        model=str(start.checkpoint or job.model.path),
        config=policy_config(job.config, compute),
        reference=str(job.model.path),
        optimizer=str(optimizer) if optimizer and optimizer.exists() else None,
    )
    engine = actors.start_engine(
        model=str(job.model.path),
        slots=min(ENGINE_SLOTS, max(job.agent_server.max_concurrent, 1)),
        capacity=job.max_seq_len,
        compute=compute,
        stop=stop_tokens,
    )
    return policy, engine


def policy_config(config: TrainingConfig, compute: ComputeType) -> PolicyConfig:
    return PolicyConfig(
        lr=config.lr,
        betas=(config.adam_beta1, config.adam_beta2),
        weight_decay=config.weight_decay,
        clip_grad=config.clip_grad,
        eps_low=config.eps_clip,
        eps_high=config.eps_clip + EPS_HIGH_EXTRA,
        temperature=config.rollout_temperature,
        global_batch_size=config.global_batch_size,
        kl_coef=config.kl_coef,
        normalize_advantages=config.normalize_advantages,
        compute=compute,
    )


async def _healthy(client: AgentClient) -> Health:
    """The agent server's first health report; it may be starting beside us."""
    deadline = time.monotonic() + AGENT_SERVER_WAIT_S
    while True:
        try:
            return await client.health()
        except AgentServerError as error:
            if time.monotonic() > deadline:
                raise InfrastructureError(
                    f"agent server: {error} for {AGENT_SERVER_WAIT_S:g} s; look at its Deployment and Service"
                ) from error
        await asyncio.sleep(1)


class _Capacity:
    """A health reader that survives a restarting server: what it last said stays true until it speaks again."""

    def __init__(self, client: AgentClient, places: InFlight) -> None:
        self._client = client
        self._places = places

    async def health(self) -> Health:
        try:
            return await self._client.health()
        except AgentServerError:
            return Health(ok=False, capacity=self._places.width, in_flight=self._places.held, queued=0)


async def watch_stop_request(request: Path, stop: asyncio.Event) -> None:
    """Sets `stop` when the file is there, and when nobody can tell any more: a run that cannot hear must not go on.

    Asked in a thread, since a volume whose server is gone answers late or never.
    """
    try:
        while not await asyncio.to_thread(request.exists):  # noqa: ASYNC110 - the request is a file on a volume
            await asyncio.sleep(STOP_POLL_S)
    except OSError as error:
        sys.stdout.write(f"stop request: {error}; stopping, since a request could no longer be heard\n")
    stop.set()


async def _leave(client: AgentClient, store: SessionStore) -> None:
    """Frees what our trials hold in the agent server; one that is gone has nothing of ours left."""
    try:
        await client.flush([store.instance_id])
    except AgentServerError as error:
        sys.stdout.write(f"flush: {error}\n")
    finally:
        await client.close()


def _pause(seconds: float) -> Any:
    return lambda: asyncio.sleep(seconds)


@contextlib.asynccontextmanager
async def _background() -> AsyncIterator[Any]:
    """Tasks that end with the block; one that failed is heard at its end."""
    tasks: list[asyncio.Task[Any]] = []
    try:
        yield lambda work: tasks.append(asyncio.create_task(work))
    finally:
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                sys.stdout.write(f"background task failed: {result!r}\n")
