"""Checkpoints as Miles leaves them, made by hand."""

import zipfile
from pathlib import Path

from harborrl_trainer.miles_engine import sealing


def torch_file(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", b"not to be opened")
    return path


def megatron_checkpoint(checkpoints: Path, rollout: int, *, optimizer: bool = True) -> Path:
    place = checkpoints / f"iter_{rollout:07d}"
    place.mkdir(parents=True)
    for rank in (0, 1):
        (place / f"__{rank}_0.distcp").write_bytes(b"weights")
    torch_file(place / "common.pt")
    (place / "metadata.json").write_text("{}")
    (place / ".metadata").write_bytes(b"x" * (1 << 20) + b"optimizer.state.exp_avg" * optimizer + b"decoder.weight")
    (checkpoints / sealing.TRACKER).write_text(f"{rollout}")
    torch_file(sealing.data_state(checkpoints, rollout))
    return place


def lora_checkpoint(checkpoints: Path, rollout: int, *, ranks: int = 2) -> Path:
    place = checkpoints / f"iter_{rollout:07d}"
    for rank in range(ranks):
        torch_file(place / "adapter" / f"adapter_megatron_rank{rank}.pt")
        torch_file(place / "adapter" / f"training_state_rank{rank}.pt")
    torch_file(sealing.data_state(checkpoints, rollout))
    return place
