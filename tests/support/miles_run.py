"""One run of `engine: miles` on this machine, with the stand-in of Miles (images/miles_shaped) as its process."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from miles_shaped import torch_file

from harborrl_trainer import index
from harborrl_trainer.index import Claim
from harborrl_trainer.job import JobDocument
from harborrl_trainer.launch.environment import for_rollouts
from harborrl_trainer.launch.seam import Adjustment, Launch, Start
from harborrl_trainer.layout import IncarnationLayout, RunLayout
from harborrl_trainer.miles_engine import plan as plans
from harborrl_trainer.miles_engine.plan import Plan
from harborrl_trainer.miles_plan.planning import MakeLaunch, Planner
from support import jobs

__all__ = ["FLAGS", "OLD_COMMIT", "SHAPED", "Process", "Run", "is_alive", "launch", "torch_file"]

ROOT = Path(__file__).resolve().parents[2]
SHAPED = ROOT / "images" / "miles_shaped"
FLAGS = ROOT / "trainer" / "harborrl_trainer" / "launch" / "data"
OLD_COMMIT = "9a003644739f4e6dd509e2e8337e8ae7e571941c"
TIMEOUT_SECONDS = 60.0


def launch(job: JobDocument, start: Start) -> Launch:
    """The smallest argv that the stand-in runs with; the product's own has its tests elsewhere."""
    argv = [
        "train.py",
        *("--hf-checkpoint", str(job.model.path)),
        *("--megatron-to-hf-mode", "bridge"),
        *("--save", str(start.checkpoints)),
        *("--dump-details", str(start.traces)),
        *("--prompt-data", str(job.data.jsonl)),
        *("--input-key", "prompt"),
        *("--num-rollout", str(job.config.num_rollout)),
        *("--rollout-batch-size", str(job.config.rollout_batch_size)),
        *("--n-samples-per-prompt", str(job.config.n_samples_per_prompt)),
        *("--save-interval", str(job.config.save_interval)),
        *("--actor-num-gpus-per-node", "2"),
    ]
    if not job.config.miles_src_commit.startswith(OLD_COMMIT):
        argv += ["--save-trigger-sentinel", str(start.checkpoints / "save-trigger")]
    if job.lora:
        argv += ["--lora-rank", str(job.lora.rank)]
        argv += ["--lora-adapter-path", str(start.adapter)] if start.adapter else []
    elif start.load:
        argv += ["--load", str(start.load)]
        argv += [] if start.optimizer else ["--no-load-optim"]
    argv += ["--no-save-optim"] if job.config.no_save_optim else []
    return Launch(argv=tuple(argv), env=for_rollouts(job, start))


NO_TRIGGER = Adjustment("checkpoint on request", "none", "a stop waits for the next periodic checkpoint")


def product_launch() -> MakeLaunch:
    """What the supervisor uses."""
    from harborrl_trainer.launch import launch as product  # noqa: PLC0415 - reads the tables of Miles' versions

    return product


@dataclass
class Run:
    """Incarnations of one job, each a process like the one that Ray starts in Miles' container."""

    volumes: Path
    job: JobDocument
    environment: dict[str, str] = field(default_factory=dict)
    more: tuple[str, ...] = ()
    """Further words of the argv."""
    make: MakeLaunch = launch

    @classmethod
    def of(
        cls,
        volumes: Path,
        environment: dict[str, str] | None = None,
        *,
        more: tuple[str, ...] = (),
        make: MakeLaunch = launch,
        **changes: Any,
    ) -> "Run":
        if not (volumes / "tasks").exists():
            jobs.make_volumes(volumes)
            jobs.make_model(volumes / "models" / "tiny")
            for name in ("one", "two", "three"):
                jobs.make_task(volumes / "tasks", name)
            rows = [{"prompt": f"do {name}", "metadata": {"instance_id": name}} for name in ("one", "two", "three")]
            (volumes / "tasks" / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        placed: dict[str, Any] = {
            "engine": "miles",
            "nodes": 1,
            "data": {"jsonl": str(volumes / "tasks" / "train.jsonl")},
            "config__numRollout": 6,
            "config__saveInterval": 2,
            "config__milesSrcCommit": "31f1ca961",
            "checkpoint": {"keep": 2, "graceSeconds": 20},
        }
        return cls(volumes, jobs.job(volumes, **(placed | changes)), environment or {}, more, make)

    def mine(self, incarnation: int = 1, attempt: int = 1) -> IncarnationLayout:
        return RunLayout.of(self.job).incarnation(attempt, incarnation)

    def planner(self) -> Planner:
        def with_more(job: JobDocument, start: Start) -> Launch:
            made = self.make(job, start)
            return replace(made, argv=(*made.argv, *self.more), env={**made.env, "PYTHONPATH": str(ROOT / "tests")})

        return Planner(self.job, with_more, {})

    def plan(self, incarnation: int = 1, attempt: int = 1, *, checked: bool = False) -> Plan:
        """Made as the supervisor makes it; not `checked`: without what needs an agent server and free ports."""
        mine = self.mine(incarnation, attempt)
        for folder in (mine.checkpoints, mine.rollout_data, mine.train_data, mine.trials):
            folder.mkdir(parents=True, exist_ok=True)
        path = self.planner().plan(attempt, incarnation)
        document = json.loads(path.read_text())
        if not checked:
            document["checks"] |= {"server": None, "ports": []}
        document["tick_seconds"] = 0.1
        path.write_text(json.dumps(document))
        return plans.load(path)

    def start(self, incarnation: int = 1, *, checked: bool = False, **environment: str) -> "Process":
        self.plan(incarnation, checked=checked)
        return Process(
            [sys.executable, "-m", "harborrl_trainer.miles_engine", str(self._plan_file(incarnation))],
            self.volumes / f"driver-{incarnation}.log",
            {
                **os.environ,
                "PYTHONPATH": str(ROOT / "trainer"),
                "HARBORRL_MILES_ROOT": str(SHAPED),
                "MILES_SHAPED_FLAGS": str(FLAGS),
                **self.environment,
                **environment,
            },
        )

    def run(self, incarnation: int = 1, *, checked: bool = False, **environment: str) -> "Process":
        process = self.start(incarnation, checked=checked, **environment)
        process.wait()
        return process

    def _plan_file(self, incarnation: int) -> Path:
        return self.mine(incarnation).checkpoints.parent / "launch" / plans.NAME

    def sealed(self, incarnation: int = 1) -> list[int]:
        marks = self.mine(incarnation).checkpoints.glob("iter_*/complete.json")
        return sorted(int(mark.parent.name.removeprefix("iter_")) for mark in marks)

    def collected(self, incarnation: int = 1) -> list[int]:
        return sorted(int(path.stem) for path in self.mine(incarnation).rollout_data.glob("*.pt"))

    def claims(self) -> tuple[Claim, ...]:
        return index.read_claims(RunLayout.of(self.job).index)


class Process:
    def __init__(self, command: list[str], log: Path, environment: dict[str, str]) -> None:
        self.log = log
        with log.open("wb") as stream:
            self._process = subprocess.Popen(command, env=environment, stdout=stream, stderr=subprocess.STDOUT)  # noqa: S603 - our own command

    @property
    def said(self) -> str:
        return self.log.read_text(errors="replace")

    @property
    def last_line(self) -> str:
        return self.said.strip().splitlines()[-1]

    @property
    def miles_pid(self) -> int:
        """As the driver told it."""
        (line,) = [line for line in self.said.splitlines() if line.startswith("Miles runs as process ")]
        return int(line.removeprefix("Miles runs as process ").partition(",")[0])

    def until(self, true: Callable[[], bool], what: str) -> None:
        until = time.monotonic() + TIMEOUT_SECONDS
        while not true():
            assert self._process.poll() is None or true(), f"the driver ended before {what}:\n{self.said}"
            assert time.monotonic() < until, f"not {what} in {TIMEOUT_SECONDS:g} s:\n{self.said}"
            time.sleep(0.05)

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        try:
            return self._process.wait(TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise AssertionError(f"the driver does not end:\n{self.said}") from None

    @property
    def exit_code(self) -> int:
        return self.wait()


def is_alive(pid: int) -> bool:
    """Whether there is such a process that is more than a name to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
