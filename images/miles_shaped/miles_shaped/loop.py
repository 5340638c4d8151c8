"""Miles' two loops in outline: what is written when, and where the save trigger is looked at. Nothing is learnt."""

import asyncio
import json
import os
import sys
import time
from argparse import Namespace
from collections.abc import Awaitable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from miles.rollout.base_types import GenerateFnInput
from miles.utils.misc import load_function
from miles.utils.types import Sample

from miles_shaped import saving, torch_file
from miles_shaped.failures import fail_if_asked
from miles_shaped.session_server import Sessions

STEP_SECONDS = float(os.environ.get("MILES_SHAPED_STEP_SECONDS", "0.05"))


@dataclass
class State:
    args: Namespace


class Data:
    """Rows of `--prompt-data`, round and round; where it goes on is in the checkpoint."""

    def __init__(self, args: Namespace) -> None:
        self.rows = [json.loads(line) for line in Path(args.prompt_data).read_text().splitlines() if line.strip()]
        self.offset = 0

    def load(self, folder: str | None, rollout: int) -> None:
        path = Path(folder or "") / "rollout" / f"global_dataset_state_dict_{rollout}.pt"
        if not path.is_file():
            print(f"Checkpoint {path} does not exist.", flush=True)
            return
        self.offset = torch_file.load(path)["sample_offset"]

    def next(self) -> dict[str, Any]:
        self.offset += 1
        row: dict[str, Any] = self.rows[(self.offset - 1) % len(self.rows)]
        return row


async def train(args: Namespace, *, ahead: bool) -> None:
    print(
        f"miles-shaped: starts at rollout {args.start_rollout_id} of {args.num_rollout}, loads {args.load}", flush=True
    )
    if args.use_session_server:
        _serve_sessions(args)
    data = Data(args)
    data.load(args.load, args.start_rollout_id - 1)
    following: Awaitable[list[list[Sample]]] | None = None
    for rollout in range(args.start_rollout_id, args.num_rollout):
        groups = await (following or generate(args, data, rollout))
        following = None
        if ahead and rollout + 1 < args.num_rollout:
            following = asyncio.ensure_future(generate(args, data, rollout + 1))
            await asyncio.sleep(0)
        _step(args, rollout, groups)
        trigger = Path(args.save_trigger_sentinel) if args.save_trigger_sentinel else None
        asked = trigger is not None and await asyncio.to_thread(trigger.exists)
        if asked or _is_due(args, rollout):
            saving.save(args, rollout, data.offset)
            if asked and trigger is not None:
                trigger.unlink()
        print(f"rollout {rollout}: trained, data at {data.offset}", flush=True)
        if os.environ.get("MILES_SHAPED_LEAVE") == str(rollout):
            return


async def generate(args: Namespace, data: Data, rollout: int) -> list[list[Sample]]:
    """Until enough whole groups are there, as Miles: for ever, if every trial is aborted."""
    fail_if_asked(rollout, "generating")
    keep = load_function(args.dynamic_sampling_filter_path)
    groups: list[list[Sample]] = []
    while len(groups) < args.rollout_batch_size:
        wanted = args.rollout_batch_size - len(groups)
        new = await asyncio.gather(*(_group(args, data.next(), rollout, data.offset) for _ in range(wanted)))
        groups += [group for group in new if keep is None or keep(args, group).keep]
    if args.dump_details:
        _dump(Path(args.dump_details), rollout, groups)
    return groups


async def _group(args: Namespace, row: dict[str, Any], rollout: int, index: int) -> list[Sample]:
    metadata = row.get(args.metadata_key) or {}
    number = args.n_samples_per_prompt
    samples = [
        Sample(
            group_index=index,
            index=index * number + member,
            rollout_id=rollout,
            prompt=row[args.input_key],
            metadata=dict(metadata),
        )
        for member in range(number)
    ]
    return list(await asyncio.gather(*(_sample(args, sample) for sample in samples)))


@cache
def _generate_function(path: str | None) -> Any:
    """A class is made once, as in Miles."""
    found = load_function(path)
    return found() if isinstance(found, type) else found


async def _sample(args: Namespace, sample: Sample) -> Sample:
    function = _generate_function(args.custom_generate_function_path)
    if function is None:
        await asyncio.sleep(STEP_SECONDS)
        sample.status, sample.reward, sample.tokens, sample.loss_mask = Sample.Status.COMPLETED, 1.0, [1, 2], [0, 1]
        return sample
    parameters = {"temperature": args.rollout_temperature, "max_tokens": args.rollout_max_response_len}
    output = await function(GenerateFnInput(State(args), sample, parameters, evaluation=False))
    done: Sample = output.samples[0] if isinstance(output.samples, list) else output.samples
    judge = load_function(args.custom_rm_path)
    if judge is not None and done.status is not Sample.Status.ABORTED:
        done.reward = await judge(args, done)
    return done


def _step(args: Namespace, rollout: int, groups: list[list[Sample]]) -> None:
    fail_if_asked(rollout, "training")
    time.sleep(STEP_SECONDS)
    if not args.dump_details:
        return
    samples = [sample for group in groups for sample in group]
    for rank in range(args.world):
        batch = {"tokens": [sample.tokens for sample in samples], "rewards": [sample.reward for sample in samples]}
        torch_file.save(
            {"rollout_id": rollout, "rank": rank, "rollout_data": batch},
            Path(args.dump_details) / "train_data" / f"{rollout}_{rank}.pt",
        )


def _dump(folder: Path, rollout: int, groups: list[list[Sample]]) -> None:
    samples = [sample for group in groups for sample in group]
    document = {"rollout_id": rollout, "metadata": {}, "samples": [sample.to_dict() for sample in samples]}
    torch_file.save(document, folder / "rollout_data" / f"{rollout}.pt")
    lines = [
        json.dumps(
            {
                "sample_index": sample.index,
                "group_index": sample.group_index,
                "status": sample.status.value,
                "reward": sample.reward,
                "prompt": sample.prompt,
                "messages": [],
            }
        )
        for sample in samples
    ]
    trajectory = folder / "trajectory"
    trajectory.mkdir(parents=True, exist_ok=True)
    (trajectory / f"{rollout}.jsonl").write_text("".join(line + "\n" for line in lines))


def _is_due(args: Namespace, rollout: int) -> bool:
    if args.save_interval is None:
        return False
    return bool(rollout == args.num_rollout - 1 or (rollout + 1) % args.save_interval == 0)


def _serve_sessions(args: Namespace) -> None:
    first, *rest = args.session_server_port or [0]
    servers = [_bind(port) for port in range(first, rest[0] if rest else first + 1)]
    args.session_server_ip = "127.0.0.1"
    args.session_server_ports = [server.server_port for server in servers]
    args.session_server_instance_ids = {server.server_port: server.instance_id for server in servers}


def _bind(port: int) -> Sessions:
    try:
        return Sessions(port)
    except OSError as error:
        print(f"Traceback (most recent call last):\nRuntimeError: Port {port} is already in use", file=sys.stderr)
        raise SystemExit(1) from error
