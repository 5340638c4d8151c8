"""Rows of the fault table through our wrapper, with Miles' own generate or with its double; sockets on loopback."""

import asyncio
import json
import sys
from argparse import Namespace
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import harborrl_trainer.miles
from harborrl_trainer.miles import process
from harborrl_trainer.miles.process import Process
from harborrl_trainer.miles.settings import Settings
from harborrl_trainer.miles.wrapper import Generate, Miles
from harborrl_trainer.rollout.agent_client import AgentClient
from support.fault_rows import Row, Seen
from support.faulty_agents import FaultyAgents
from support.raw_http import serving

ON_PATH = Path(harborrl_trainer.miles.__file__).parent / "pythonpath"


@dataclass(frozen=True)
class Edition:
    """One edition of Miles, or its double."""

    parts: Miles
    sample: Callable[..., Any]
    given: Callable[..., Any]
    """GenerateFnInput."""
    sessions: Callable[[], AbstractAsyncContextManager[Any]]
    """Starts a session server: an object with `port`, `instance` and `opened()`."""


@dataclass
class Stage:
    """A rollout process of Miles with an agent server and a session server."""

    edition: Edition
    agents: FaultyAgents
    process: Process
    args: Namespace
    state: Any
    sessions: Any
    trials_dir: Path

    def sample(self, fault: str, *, group: int = 0, index: int = 0, **metadata: Any) -> Any:
        return self.edition.sample(
            group_index=group, index=index, prompt="task", metadata={"instance_id": fault, **metadata}
        )

    async def generate(self, sample: Any, *, evaluation: bool = False) -> Any:
        generate = Generate(load=lambda: self.edition.parts)
        given = self.edition.given(
            state=self.state, sample=sample, sampling_params={"temperature": 1.0}, evaluation=evaluation
        )
        return (await generate(given)).samples

    async def crowd(self, faults: Sequence[str]) -> list[str]:
        """A group of one for each fault, all at once; their statuses."""
        samples = [self.sample(fault, group=at, index=at) for at, fault in enumerate(faults)]
        done = await asyncio.gather(*(self.generate(sample) for sample in samples))
        return [str(sample.status.value) for sample in done]

    def records(self) -> list[dict[str, Any]]:
        self.process.records.close()
        files = self.trials_dir.glob("*.jsonl")
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]


@asynccontextmanager
async def stage(
    edition: Edition,
    agents: FaultyAgents | None = None,
    *,
    settings: dict[str, Any] | None = None,
    absence_pause: Callable[[float], Awaitable[None]] | None = None,
    **args: Any,
) -> AsyncIterator[Stage]:
    agents = agents or FaultyAgents()
    if str(ON_PATH) not in sys.path:
        sys.path.insert(0, str(ON_PATH))
    with TemporaryDirectory() as folder:
        async with serving(agents.handle) as port, edition.sessions() as sessions:
            chosen = Settings(
                **{
                    "agent_server_url": f"http://127.0.0.1:{port}",
                    "trials_dir": Path(folder),
                    "admin_secret": "s3",
                    **(settings or {}),
                }
            )
            client = AgentClient(
                chosen.agent_server_url,
                ceiling_s=chosen.ceiling_s,
                admin_secret=chosen.admin_secret,
                pause=absence_pause or (lambda _: asyncio.sleep(0)),
            )
            others = asyncio.all_tasks()
            rollouts = process.current(lambda: Process(chosen, client))
            try:
                shape = _args(sessions, args)
                state = Namespace(args=shape, aborted=False, tokenizer=sessions.template)
                yield Stage(edition, agents, rollouts, shape, state, sessions, Path(folder))
            finally:
                await _end(asyncio.all_tasks() - others - rollouts.tasks)
                await rollouts.close()


async def _end(left: set[asyncio.Task[Any]]) -> None:
    """What a broken-off loop of Miles leaves behind would go on with the next stage's process."""
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


def _args(sessions: Any, changes: dict[str, Any]) -> Namespace:
    """Those that the wrapper and both editions of generate read."""
    return Namespace(
        **{
            "session_server_ip": "127.0.0.1",
            "session_server_port": sessions.port,
            "session_server_ports": [sessions.port],
            "session_server_instance_ids": {sessions.port: sessions.instance},
            "custom_agent_function_path": "swe_agent_function.run",
            "use_session_server": True,
            "max_seq_len": None,
            "generate_multi_samples": False,
            "rollout_batch_size": 100,
            "n_samples_per_prompt": 1,
            "save_debug_trajectory_data": None,
            "sglang_speculative_algorithm": None,
            "use_rollout_routing_replay": False,
            "use_rollout_indexer_replay": False,
            **changes,
        }
    )


async def run_row(edition: Edition, row: Row) -> Seen:
    settings = {"on_agent_timeout": row.on_agent_timeout, "ceiling_s": row.ceiling_s}
    async with stage(edition, settings=settings) as on:
        sample = await on.generate(on.sample(row.fault, reward=0.99, exit_status="Submitted"))
        records = on.records()
        return Seen(
            status=sample.status.value,
            reward=sample.metadata["harborrl"]["reward"],
            outcome=sample.metadata["exit_status"],
            cause=sample.metadata["harborrl"]["cause"],
            runs=len(on.agents.requests),
            sessions=on.sessions.opened(),
            counts=dict(on.process.ledger.counts()),
            records=records,
            learned=0 if sample.remove_sample else sum(sample.loss_mask or []),
            metadata={key: sample.metadata.get(key) for key in ("reward", "instance_id")},
        )
