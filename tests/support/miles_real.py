"""Miles' own code as an Edition of the harness, in a process of its own: `python -m support.miles_real SOURCE RESULT`.

What is Miles': generate, the tracer, samples, both rollout loops, the data classes, and (31f1ca961) the session
server's core. Stubbed, since they are not installed here or need a GPU: sglang, sglang_router, pybase64, pylatexenc and
miles_plugins; of sglang one name is used, the fields of a chat request. The tokenizer is support.miles_sessions'.
Miles' pauses between repeated HTTP requests (1 s, sixty times) are cut to nothing.
"""

import asyncio
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import logging
import sys
import types
from argparse import Namespace
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, override

import httpx
from pydantic import BaseModel

from harborrl_trainer.miles.wrapper import installed
from support.fault_rows import CROWD, MIXTURE, ROWS
from support.faulty_agents import FaultyAgents
from support.miles_harness import Edition, Stage, run_row, stage
from support.miles_sessions import FakeTemplate, completion, recording_sessions
from support.raw_http import Answer, Asked, serving

STUBBED = frozenset({"sglang", "sglang_router", "pybase64", "pylatexenc", "miles_plugins"})
COMMON = "miles.rollout.inference_rollout.inference_rollout_common"


class ChatCompletionRequest(BaseModel):
    model: str
    messages: list[Any]
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    max_tokens: int | None = None
    seed: int | None = None
    stop: list[str] | None = None


class Stub(types.ModuleType):
    """A module in which every name is a class without content."""

    __path__: list[str] = []  # noqa: RUF012 - what makes it a package
    __version__ = "0.3.0"

    @override
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class Stubs(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    @override
    def find_spec(self, fullname: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        mine = fullname.partition(".")[0] in STUBBED
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True) if mine else None

    @override
    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return Stub(spec.name)

    @override
    def exec_module(self, module: types.ModuleType) -> None:
        if module.__name__.endswith("openai.protocol"):
            module.__dict__["ChatCompletionRequest"] = ChatCompletionRequest


class Arguments(Namespace):
    """Miles' arguments: whatever a test does not set is None, as an unset flag mostly is."""

    @override
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None


class CoreSessions:
    """Miles' session server core (31f1ca961) behind our HTTP; the inference engine is `completion`."""

    instance = "sessions-a"

    def __init__(self) -> None:
        core = importlib.import_module("miles.rollout.session.core")
        trajectory = importlib.import_module("miles.rollout.session.linear_trajectory")
        self._error = importlib.import_module("miles.rollout.session.errors").SessionError
        self.template = FakeTemplate()
        args = Arguments(lora_rank=0)
        self._registry = trajectory.SessionRegistry(args, self.template, tito_tokenizer=self.template)
        self._core = core.SessionCore(self, self._registry, args, self.instance)
        self._opened = 0
        self.port = 0

    def opened(self) -> int:
        return self._opened

    async def do_proxy(self, _request: Any, _path: str, *, body: bytes, **_: Any) -> dict[str, Any]:
        asked = json.loads(body)
        response = completion(asked["input_ids"], asked["messages"])
        return {"status_code": 200, "response_body": json.dumps(response).encode(), "headers": {}}

    async def handle(self, asked: Asked) -> Answer | None:
        try:
            answer = await self._route(asked, asked.path.strip("/").split("/"))
        except self._error as error:
            return Answer.of({"error": str(error)}, status=error.status_code)
        return Answer(answer.status_code, answer.body)

    async def _route(self, asked: Asked, parts: list[str]) -> Any:
        if parts == ["health"]:
            return await self._core.health()
        if parts == ["sessions"]:
            self._opened += 1
            return await self._core.create_session()
        if parts[-1] == "samples":
            return await self._core.collect_samples(parts[1], max_seq_len=asked.body["max_seq_len"])
        if parts[-1] == "completions":
            body = json.dumps(asked.body).encode()
            return await self._core.chat_completions(parts[1], method="POST", query="", headers={}, body=body)
        return await self._core.delete_session(parts[1])


@asynccontextmanager
async def core_sessions() -> AsyncIterator[CoreSessions]:
    sessions = CoreSessions()
    async with serving(sessions.handle) as port:
        sessions.port = port
        yield sessions


def edition() -> Edition:
    """By what the source has, not by its version."""
    http_utils: Any = importlib.import_module("miles.utils.http_utils")
    http_utils._http_client = httpx.AsyncClient(timeout=httpx.Timeout(None), trust_env=False)
    http_utils.asyncio = types.SimpleNamespace(**{**vars(asyncio), "sleep": lambda _: asyncio.sleep(0)})
    has_core = importlib.util.find_spec("miles.rollout.session.core") is not None
    return Edition(
        parts=installed(),
        sample=importlib.import_module("miles.utils.types").Sample,
        given=importlib.import_module("miles.rollout.base_types").GenerateFnInput,
        sessions=core_sessions if has_core else recording_sessions,
    )


@dataclass
class Source:
    """A data source: group after group, with the faults in turn."""

    make: Any
    faults: Sequence[str]
    size: int
    groups: int = 0

    def get_samples(self, count: int) -> list[list[Any]]:
        return [self._group() for _ in range(count)]

    def _group(self) -> list[Any]:
        group, self.groups = self.groups, self.groups + 1
        fault = self.faults[group % len(self.faults)]
        return [self.make(fault, group=group, index=group * self.size + at) for at in range(self.size)]

    def add_samples(self, samples: list[Any]) -> None:
        if samples:
            raise AssertionError("no partial rollouts here")


def loop_arguments(on: Stage, **changes: Any) -> Any:
    """Those of Miles' rollout loops, on top of the harness' own."""
    port = int(on.process.settings.agent_server_url.rpartition(":")[2])
    common: Any = importlib.import_module(COMMON)
    common.load_tokenizer = lambda *_, **__: on.sessions.template
    common.load_processor = lambda *_, **__: None
    dumps: Any = importlib.import_module("miles.utils.dumper_utils")
    dumps.configure_sglang = _nothing
    return Arguments(
        **{
            **vars(on.args),
            "sglang_server_concurrency": 512,
            "rollout_num_gpus": 1,
            "rollout_num_gpus_per_engine": 1,
            "rollout_temperature": 1.0,
            "rollout_top_p": 1.0,
            "rollout_max_response_len": 64,
            "rollout_global_dataset": True,
            "custom_generate_function_path": "harborrl_trainer.miles.generate.generate",
            "custom_rm_path": "generate.reward_func",
            "dynamic_sampling_filter_path": "miles.rollout.filter_hub.dynamic_sampling_filters.check_no_aborted",
            "sglang_router_ip": "127.0.0.1",
            "sglang_router_port": port,
            "n_samples_per_prompt": 2,
            "rollout_batch_size": 2,
            "over_sampling_batch_size": 3,
            "async_unused_samples_handler": "drop",
            "async_data_buffer_capacity_factor": 2.0,
            **changes,
        }
    )


async def _nothing(_: Any) -> None:
    """Dumps of the inference engine, which is not there."""


async def sync_rollout(made: Edition) -> dict[str, Any]:
    """Two groups are wanted, three are submitted, and the third would go on for ever."""
    generate: Any = importlib.import_module("generate")
    async with stage(made) as on:
        args = loop_arguments(on)
        source = Source(on.sample, ["good", "lost-once", "after-cancel"], 2)
        rollout = generate.RolloutFn(_constructor(args, source))
        output = await rollout(_train_input(4))
        rewards = [[sample.reward for sample in group] for group in output.samples]
        statuses = [[sample.status.value for sample in group] for group in output.samples]
        return {
            "rewards": rewards,
            "statuses": statuses,
            "metrics": output.metrics,
            "flushed": on.agents.flushed,
            "in_flight": on.process.ledger.in_flight,
            "records": on.records(),
        }


async def sync_gives_up(made: Edition) -> dict[str, Any]:
    generate: Any = importlib.import_module("generate")
    with TemporaryDirectory() as folder:
        verdict = Path(folder) / "verdict.json"
        async with stage(made, settings={"verdict_file": verdict, "give_up_groups": 4}) as on:
            rollout = generate.RolloutFn(_constructor(loop_arguments(on), Source(on.sample, ["lost"], 2)))
            raised = await _raised(rollout(_train_input(0)))
            return {"raised": raised, "verdict": json.loads(verdict.read_text()), "groups": _dropped(on)}


async def async_rollout(made: Edition) -> dict[str, Any]:
    """Two rollouts of the fully asynchronous mode, which has no rollout function of ours."""
    module = importlib.import_module("miles.rollout.fully_async_rollout")
    async with stage(made, settings={"start_rollout": 7}) as on:
        rollout = module.FullyAsyncRolloutFn(_constructor(loop_arguments(on), Source(on.sample, ["good", "lost"], 2)))
        outputs = [await rollout(_train_input(at)) for at in (7, 8)]
        rollout._worker.cancel()
        with suppress(asyncio.CancelledError):
            await rollout._worker
        rewards = [[sample.reward for group in output.samples for sample in group] for output in outputs]
        return {"rewards": rewards, "records": on.records(), "counts": dict(on.process.ledger.counts())}


async def async_gives_up(made: Edition) -> dict[str, Any]:
    module = importlib.import_module("miles.rollout.fully_async_rollout")
    async with stage(made, settings={"give_up_groups": 4}) as on:
        rollout = module.FullyAsyncRolloutFn(_constructor(loop_arguments(on), Source(on.sample, ["task-missing"], 2)))
        return {"raised": await _raised(rollout(_train_input(0))), "groups": _dropped(on)}


async def crowd(made: Edition) -> dict[str, Any]:
    """All at once, and the agent server answers none before all are there."""
    async with stage(made, FaultyAgents(together=CROWD)) as on:
        statuses = await on.crowd([MIXTURE[at % len(MIXTURE)] for at in range(CROWD)])
        return {"statuses": statuses, "counts": dict(on.process.ledger.counts()), "records": len(on.records())}


async def without_wrapper(made: Edition) -> dict[str, Any]:
    """Miles' generate alone with our agent function and reward, on data that brings a reward of its own."""
    generate: Any = importlib.import_module("generate")
    found = {}
    async with stage(made) as on:
        for fault in ("good", "http-500", "null-reward"):
            given = made.given(
                state=on.state, sample=on.sample(fault, reward=0.99), sampling_params={}, evaluation=False
            )
            sample = (await made.parts.generate(given)).samples
            reward = await generate.reward_func(on.args, sample)
            found[fault] = [sample.status.value, reward]
    return found


async def _raised(work: Any) -> list[str]:
    """Name and text of what is raised: also of what is no Exception, and passes through Miles' loops."""
    try:
        await work
    except BaseException as error:  # noqa: BLE001 - the kind is what is looked at
        return [type(error).__name__, str(error)]
    return ["", ""]


def _dropped(on: Stage) -> int:
    return on.process.ledger.counts()["groups_dropped"]


def _constructor(args: Any, source: Source) -> Any:
    return importlib.import_module("miles.rollout.base_types").RolloutFnConstructorInput(args=args, data_source=source)


def _train_input(rollout_id: int) -> Any:
    return importlib.import_module("miles.rollout.base_types").RolloutFnTrainInput(rollout_id=rollout_id)


async def everything(made: Edition) -> dict[str, Any]:
    rows = {row.name: asdict(await run_row(made, row)) for row in ROWS}
    scenarios = [sync_rollout, sync_gives_up, crowd, without_wrapper]
    if importlib.util.find_spec("miles.rollout.fully_async_rollout") is not None:
        scenarios += [async_rollout, async_gives_up]
    return {"rows": rows, **{scenario.__name__: await scenario(made) for scenario in scenarios}}


def main(source: str, result: str) -> None:
    logging.disable(logging.CRITICAL)
    sys.meta_path.insert(0, Stubs())
    sys.path.insert(0, source)
    Path(result).write_text(json.dumps(asyncio.run(everything(edition()))))


if __name__ == "__main__":
    main(*sys.argv[1:])
