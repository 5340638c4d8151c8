"""Is the model there, and could it be loaded in outline: configuration, tokenizer, every byte of the weights."""

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harborrl_trainer.preflight.findings import Finding, Outcome, refuse

_TOKENIZERS = (("tokenizer.json",), ("tokenizer.model",), ("vocab.json", "merges.txt"))
_INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_WHOLE = ("model.safetensors", "pytorch_model.bin")
_READ_BY_LOADERS = frozenset({".bin", ".json", ".model", ".safetensors", ".txt"})
_HEADER_LIMIT = 100_000_000
"""Bytes; the safetensors format allows no longer header."""


_REMEDY = "Put the model on the models volume or correct model.path."


def check_model(path: Path, remedy: str = _REMEDY) -> Outcome:
    """Facts: `model.parameters`. Weights are measured by their headers, never loaded. `remedy`: where there is none."""
    missing = check_directory(path, remedy)
    if missing.findings:
        return missing
    weights, problem = _weight_files(path)
    problems = [_config_problem(path), _tokenizer_problem(path), problem, *map(_weight_problem, weights)]
    findings = [_incomplete(path, problem) for problem in problems if problem]
    return Outcome(findings, {"model": {"parameters": parameter_count(path)}})


def check_directory(path: Path, remedy: str) -> Outcome:
    """Whether the trainer's user can list a model's directory and open what a loader reads."""
    try:
        _open_all(path)
    except (FileNotFoundError, NotADirectoryError):
        return Outcome([refuse("model", "ModelNotFound", f"{path} is not a directory. {remedy}")])
    except PermissionError as error:
        return Outcome([_not_readable(path, Path(error.filename))])
    return Outcome()


def _open_all(path: Path) -> None:
    """Opens what a loader may read, for only that tells: modes, ACLs and the volume's server all have a say."""
    for file in sorted(path.iterdir()):
        if file.suffix in _READ_BY_LOADERS:
            try:
                os.close(os.open(file, os.O_RDONLY | os.O_NONBLOCK))
            except FileNotFoundError:
                continue  # a dangling link: told by the check that misses the file


def _not_readable(path: Path, denied: Path) -> Finding:
    message = (
        f"{denied}: permission denied for user {os.geteuid()}, group {os.getegid()}, as whom the trainer runs. "
        f"Let others read it (chmod -R a+rX {path}) or give it to that group."
    )
    return refuse("model", "ModelNotReadable", message)


def parameter_count(path: Path) -> int:
    """Parameters of the model, 0 where it cannot be told; pickled weights are taken for half precision."""
    try:
        weights, _ = _weight_files(path)
    except PermissionError:
        return 0
    return sum(_parameters(file) for file in weights)


def _parameters(file: Path) -> int:
    if file.suffix != ".safetensors":
        return file.stat().st_size // 2
    try:
        return sum(math.prod(tensor["shape"]) for tensor in _read_header(file).tensors)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return 0


def _incomplete(path: Path, problem: str) -> Finding:
    return refuse("model", "ModelIncomplete", f"{path}: {problem}. Copy the model again in Hugging Face form.")


def _config_problem(path: Path) -> str:
    try:
        config = json.loads((path / "config.json").read_bytes())
    except OSError as error:
        return f"config.json cannot be read ({error.strerror})"
    except ValueError:
        return "config.json is not JSON"
    named = isinstance(config, dict) and (config.get("model_type") or config.get("architectures"))
    return "" if named else "config.json names neither model_type nor architectures"


def _tokenizer_problem(path: Path) -> str:
    found = any(all(_filled(path / name) for name in names) for names in _TOKENIZERS)
    return "" if found else "there is no tokenizer (tokenizer.json, tokenizer.model or vocab.json with merges.txt)"


def _weight_files(path: Path) -> tuple[list[Path], str]:
    """Weight files as the loader would choose them, and what is wrong with the choice."""
    for name in _WHOLE:
        if (path / name).is_file():
            return [path / name], ""
    for name in _INDEXES:
        if (path / name).is_file():
            return _shards(path, name)
    return [], "there are no weights (model.safetensors or a set of shards with its index)"


def _shards(path: Path, index_name: str) -> tuple[list[Path], str]:
    try:
        names = sorted(set(json.loads((path / index_name).read_bytes())["weight_map"].values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return [], f"{index_name} cannot be read"
    missing = [name for name in names if not (path / name).is_file()]
    problem = f"{len(missing)} of {len(names)} shards are missing, {missing[0]} first" if missing else ""
    return [path / name for name in names if name not in missing], problem


def _weight_problem(file: Path) -> str:
    if file.suffix != ".safetensors":
        return "" if _filled(file) else f"{file.name} is empty"
    try:
        header = _read_header(file)
        expected = header.length + max((int(tensor["data_offsets"][1]) for tensor in header.tensors), default=0)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return f"{file.name} is no safetensors file (a pointer of Git LFS, or torn)"
    size = file.stat().st_size
    return "" if size == expected else f"{file.name} has {size} bytes where its header says {expected}"


@dataclass(frozen=True)
class _Header:
    length: int
    """Bytes before the tensors' data, the 8 of the length field included."""
    tensors: list[dict[str, Any]]
    """`dtype`, `shape` and `data_offsets` (begin and end, from `length` on) of each tensor."""


def _read_header(file: Path) -> _Header:
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if not 2 <= length <= _HEADER_LIMIT:
            raise ValueError(length)
        header: dict[str, Any] = json.loads(stream.read(length))
    return _Header(8 + length, [tensor for name, tensor in header.items() if name != "__metadata__"])


def _filled(file: Path) -> bool:
    return file.is_file() and file.stat().st_size > 0
