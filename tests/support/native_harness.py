"""Rows of the fault table through the native collector: its own session server, a scripted engine, real sockets."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, override

import httpx

from harborrl_trainer.native.chat import ChatRenderer
from harborrl_trainer.native.collect import Collector
from harborrl_trainer.native.plan import TrialPlan
from harborrl_trainer.native.sampling import SamplingParams
from harborrl_trainer.native.session import Generation
from harborrl_trainer.native.session_server import SessionStore, build_app
from harborrl_trainer.prompt_rows import Prompt
from harborrl_trainer.rollout.agent_client import AgentClient
from harborrl_trainer.rollout.inflight import InFlight
from harborrl_trainer.rollout.trial_log import TrialLog
from support import jobs, tiny_model
from support.fault_rows import Row, Seen
from support.faulty_agents import FaultyAgents
from support.raw_http import Answer, Asked, serving

ENDINGS = {"stop": "stop", "length": "length", "abort": "abort"}


def scripted_engine(renderer: ChatRenderer) -> Callable[[str, list[int], SamplingParams], Awaitable[Generation]]:
    """Answers two tokens; the last words of the prompt say how: `say stop`, `say length`, `say abort`."""

    async def generate(_: str, prompt: list[int], __: SamplingParams) -> Generation:
        asked = renderer.text(prompt).rpartition("say ")[2].split()[0]
        tokens = (40, tiny_model.END_ID) if asked == "stop" else (40, 41)
        ending: Any = ENDINGS[asked]
        return Generation(tokens, (-0.5, -0.5), ending, weight_version=3)

    return generate


@cache
def tiny_renderer() -> ChatRenderer:
    return ChatRenderer(tiny_model.tokenizer())


class CountingStore(SessionStore):
    opened = 0

    @override
    def open(self) -> Any:
        self.opened += 1
        return super().open()


@asynccontextmanager
async def session_server(store: SessionStore) -> AsyncIterator[int]:
    """The real application behind a socket that opens and closes at once."""
    async with httpx.AsyncClient(transport=httpx.ASGITransport(build_app(store)), base_url="http://sessions") as inner:

        async def forward(asked: Asked) -> Answer:
            response = await inner.request(asked.method, asked.path, json=asked.body)
            return Answer(response.status_code, response.content)

        async with serving(forward) as port:
            yield port


@dataclass
class Stage:
    collector: Collector
    agents: FaultyAgents
    store: CountingStore
    folder: Path

    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "native.jsonl").read_text().splitlines()]


@asynccontextmanager
async def stage(row: Row, agents: FaultyAgents | None = None) -> AsyncIterator[Stage]:
    agents = agents or FaultyAgents()
    renderer = tiny_renderer()
    store = CountingStore(renderer=renderer, generate=scripted_engine(renderer), max_seq_len=2048, max_response=64)
    with TemporaryDirectory() as name:
        folder = Path(name)
        budgets = dict.fromkeys(jobs.document()["agentServer"]["budgets"], 1)
        job = jobs.job(folder, rollout__onAgentTimeout=row.on_agent_timeout, agentServer__budgets=budgets)
        rollout = job.rollout.model_copy(update={"agent_trial_timeout_seconds": row.ceiling_s})
        job = job.model_copy(update={"rollout": rollout})
        async with serving(agents.handle) as port, session_server(store) as sessions:
            client = AgentClient(f"http://127.0.0.1:{port}", ceiling_s=row.ceiling_s, pause=lambda _: asyncio.sleep(0))
            log = TrialLog(folder / "native.jsonl")
            places = InFlight(1000)
            collector = Collector(job, store, client, places, log, f"127.0.0.1:{sessions}", time.monotonic)
            try:
                yield Stage(collector, agents, store, folder)
            finally:
                await client.close()
                log.close()


def plans(faults: Sequence[str]) -> list[list[TrialPlan]]:
    """One group of one trial for each fault."""
    return [
        [TrialPlan(0, at, at, Prompt(at, "task", fault, {"instance_id": fault}, "row"), seed=at)]
        for at, fault in enumerate(faults)
    ]


async def run_row(row: Row) -> Seen:
    async with stage(row) as on:
        [group] = await on.collector.collect(plans([row.fault]))
        end = group.trials[0].final
        kept = end.verdict.status != "aborted"
        return Seen(
            status=end.verdict.status,
            reward=end.verdict.reward,
            outcome=end.outcome,
            cause=end.verdict.cause,
            runs=len(on.agents.requests),
            sessions=on.store.opened,
            counts=dict(on.collector.ledger.counts()),
            records=on.records(),
            learned=sum(end.payload.trajectory.loss_mask) if kept and end.payload else 0,
        )
