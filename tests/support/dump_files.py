"""Dumps as Miles writes them, whole and hostile."""

import json
import os
import pickle
import zipfile
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, override

import numpy as np
import torch


def sample(index: int, **changes: Any) -> dict[str, Any]:
    """A Sample dictionary with the keys and types that torch.save meets in Miles."""
    return {
        "group_index": index // 2,
        "index": index,
        "rollout_id": None,
        "prompt": [{"role": "user", "content": "go"}],
        "tokens": [5, 6, 7, 8],
        "multimodal_inputs": None,
        "response": "x",
        "response_length": 3,
        "label": None,
        "reward": float(index % 2),
        "loss_mask": [1, 0, 1],
        "weight_versions": ["3", "4"],
        "rollout_log_probs": [-0.5, 0.0, -0.25],
        "rollout_routed_experts": np.zeros((3, 2, 2), dtype=np.int32),
        "remove_sample": False,
        "status": "completed",
        "metadata": {"instance_id": f"task-{index // 2}"},
        "spec_info": {"completion_token_num": 0},
        "non_generation_time": 0.0,
    } | changes


def write_rollout(path: Path, samples: Sequence[dict[str, Any]], rollout: int = 0) -> Path:
    return _save(path, {"rollout_id": rollout, "metadata": {}, "samples": list(samples)})


def write_train(path: Path, gaps: dict[int, Sequence[float]], *, rank: int = 0, **changes: Any) -> Path:
    """`gaps`: sample index -> trainer minus rollout for each of three tokens, of which the middle one is masked."""
    theirs = torch.tensor([-0.5, 0.0, -0.25])
    columns: dict[str, Any] = {
        "tokens": [torch.tensor([5, 6, 7, 8])] * len(gaps),
        "response_lengths": [3] * len(gaps),
        "sample_indices": list(gaps),
        "loss_masks": [torch.tensor([1, 0, 1])] * len(gaps),
        "log_probs": [theirs + torch.tensor(gap) for gap in gaps.values()],
        "rollout_log_probs": [theirs] * len(gaps),
        "rewards": [1.0] * len(gaps),
    } | changes.pop("columns", {})
    head = {"rollout_id": 0, "rank": rank, "cp_rank": 0, "cp_size": 1, "qkv_format": "thd"}
    return _save(path, head | changes | {"rollout_data": columns})


def write_lines(path: Path, *lines: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


def write_run(root: Path, rewards: Sequence[float] = (0.0, 1.0), incarnation: str = "a1/i1") -> Path:
    """A run's traces with one rollout a reward, each trained on by one rank and a conversation beside it."""
    for rollout, reward in enumerate(rewards):
        traces = root / incarnation / "traces"
        write_rollout(traces / "rollout_data" / f"{rollout}.pt", [sample(i, reward=reward) for i in range(2)], rollout)
        write_train(traces / "train_data" / f"{rollout}_0.pt", {0: (0.1, 9.0, -0.3), 1: (0.0, 9.0, 0.0)})
        write_lines(traces / "trajectory" / f"{rollout}.jsonl", {"messages": [{"role": "assistant", "content": "x"}]})
    return root


class Executing:
    """A pickle of it runs a command when it is loaded without care."""

    def __init__(self, command: str) -> None:
        self._command = command

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (self._command,)


def write_hostile(path: Path, command: str, *, archive: bool) -> Path:
    if archive:
        return _save(path, {"samples": [Executing(command)]})
    path.write_bytes(pickle.dumps(Executing(command)))
    return path


def write_claiming(path: Path, elements: int) -> Path:
    """An archive whose pickle says that a storage of 16 bytes has `elements` numbers of 4 bytes."""

    class Storage:
        pass

    class Claiming(pickle.Pickler):
        @override
        def persistent_id(self, obj: Any) -> Any:
            return ("storage", torch.FloatStorage, "0", "cpu", elements) if isinstance(obj, Storage) else None

    class Tensor:
        @override
        def __reduce__(self) -> tuple[Any, ...]:
            return torch._utils._rebuild_tensor_v2, (Storage(), 0, (elements,), (1,), False, {})

    buffer = BytesIO()
    Claiming(buffer, protocol=2).dump({"samples": [Tensor()]})
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in (
            ("data.pkl", buffer.getvalue()),
            ("byteorder", b"little"),
            ("data/0", bytes(16)),
            ("version", b"3\n"),
        ):
            archive.writestr(f"archive/{name}", content)
    return path


def _save(path: Path, value: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(value, path)
    os.utime(path, (1_700_000_000, 1_700_000_000))
    return path
