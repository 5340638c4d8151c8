"""Checkpoints in Miles' places and order: shards, index, tracker file, then the place in the data set."""

import os
import signal
from argparse import Namespace
from pathlib import Path

from miles_shaped import torch_file

TRACKER = "latest_checkpointed_iteration.txt"


def save(args: Namespace, rollout: int, offset: int) -> None:
    place = Path(args.save) / f"iter_{rollout:07d}"
    place.mkdir(parents=True, exist_ok=True)
    if args.lora_rank:
        _save_adapter(place / "adapter", args)
    else:
        _save_full(place, args, rollout)
    _die_here("before the data state", rollout)
    state = {
        "sample_offset": offset,
        "epoch_id": 0,
        "sample_group_index": offset,
        "sample_index": offset,
        "metadata": {},
    }
    torch_file.save(state, Path(args.save) / "rollout" / f"global_dataset_state_dict_{rollout}.pt")
    print(f"saved checkpoint of rollout {rollout}", flush=True)


def _save_full(place: Path, args: Namespace, rollout: int) -> None:
    for rank in range(args.world):
        (place / f"__{rank}_0.distcp").write_bytes(b"weights" * 64)
    torch_file.save({"iteration": rollout}, place / "common.pt")
    _die_here("in the shards", rollout)
    names = ["decoder.weight"] + ([] if args.no_save_optim else ["optimizer.state.exp_avg.decoder.weight"])
    (place / ".metadata").write_text("\n".join(names))
    (place / "metadata.json").write_text('{"sharded_backend": "torch_dist", "sharded_backend_version": 1}')
    (Path(args.save) / TRACKER).write_text(str(rollout))


def _save_adapter(adapter: Path, args: Namespace) -> None:
    adapter.mkdir(exist_ok=True)
    for rank in range(args.world):
        torch_file.save({"lora_A": [0.0]}, adapter / f"adapter_megatron_rank{rank}.pt")
    torch_file.save({"lora_A": [0.0]}, adapter / "adapter_model.bin")
    (adapter / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    for rank in range(args.world):
        torch_file.save({"iteration": 0}, adapter / f"training_state_rank{rank}.pt")


def _die_here(where: str, rollout: int) -> None:
    """MILES_SHAPED_DIE='5 in the shards': the whole group is killed there, as by a node that goes."""
    if os.environ.get("MILES_SHAPED_DIE") == f"{rollout} {where}":
        print(f"dies {where} of rollout {rollout}", flush=True)
        os.killpg(os.getpgrp(), signal.SIGKILL)


def tracker(folder: str | None) -> str | None:
    path = Path(folder) / TRACKER if folder else None
    return path.read_text().strip() if path and path.is_file() else None
