"""Which files of a data set's folder hold one split, by the rules of the Hugging Face hub.

A card that lists its files is believed. Otherwise names tell: a split's name as a word of a file's path. Where no file
names any split, all of them are `train`.
"""

import fnmatch
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

import yaml

from harborrl_trainer.errors import ConfigurationError

SUFFIXES = (".jsonl", ".ndjson", ".json", ".parquet", ".gz")
CARD = "README.md"
_SPLITS = ("train", "training", "test", "testing", "validation", "valid", "dev", "val", "eval")
_NOT_DATA = ("dataset_infos.json", "dataset_info.json", "state.json")


def files_of(names: Iterable[str], card: str, split: str, config: str | None, where: str) -> list[str]:
    """Sorted names of the files with rows of `split`; ConfigurationError when there are none, or several configs."""
    data = sorted(name for name in names if _is_data(name))
    if not data:
        raise ConfigurationError(
            f"{where}: holds neither task directories (with a task.toml or an instruction) nor data files"
            f" ({', '.join(SUFFIXES[:-1])})"
        )
    listed = _configs(card)
    if listed:
        return _by_card(data, listed, split, config, where)
    if config is not None:
        data = [name for name in data if config in PurePosixPath(name).parts[:-1]]
    named = {name: words for name in data if (words := _words(name) & {*_SPLITS, split.lower()})}
    chosen = [name for name, words in named.items() if split.lower() in words]
    if not named and split == "train":
        chosen = data
    if not chosen:
        raise ConfigurationError(f"{where}: no data file of split '{split}' among {_some(data)}; correct --split")
    _one_config(chosen, where)
    return chosen


def _is_data(name: str) -> bool:
    path = PurePosixPath(name)
    hidden = any(part.startswith(".") for part in path.parts)
    stem = path.with_suffix("") if path.suffix == ".gz" else path
    return not hidden and path.name not in _NOT_DATA and stem.suffix in SUFFIXES[:-1]


def _words(name: str) -> set[str]:
    return set(re.split(r"[^a-z0-9]+", name.lower()))


def _one_config(chosen: Sequence[str], where: str) -> None:
    folders = sorted({str(PurePosixPath(name).parent) for name in chosen})
    if len(folders) > 1:
        raise ConfigurationError(
            f"{where}: the split lies in several folders ({_some(folders)}); choose one by --config"
        )


def _configs(card: str) -> Mapping[str, Sequence[Mapping[str, Any]]]:
    """Config name -> its `{split, path}` entries, from the front matter of a card; empty without any."""
    found = re.match(r"---\s*\n(.*?)\n---\s*(\n|$)", card, flags=re.DOTALL)
    try:
        front = yaml.safe_load(found[1]) if found else None
    except yaml.YAMLError:
        return {}
    configs = front.get("configs") if isinstance(front, dict) else None
    result: dict[str, list[Mapping[str, Any]]] = {}
    for one in configs if isinstance(configs, list) else ():
        files: Any = one.get("data_files") if isinstance(one, dict) else None
        if isinstance(files, str):
            files = [{"split": "train", "path": files}]
        entries: list[Mapping[str, Any]] = [
            entry for entry in files or () if isinstance(entry, dict) and "split" in entry and "path" in entry
        ]
        if entries:
            result[str(one.get("config_name", "default"))] = entries
    return result


def _by_card(
    data: Sequence[str],
    configs: Mapping[str, Sequence[Mapping[str, Any]]],
    split: str,
    config: str | None,
    where: str,
) -> list[str]:
    name = config or ("default" if "default" in configs else next(iter(configs)))
    if name not in configs or (config is None and len(configs) > 1 and "default" not in configs):
        raise ConfigurationError(f"{where}: choose one of its configs by --config: {', '.join(sorted(configs))}")
    paths = [entry["path"] for entry in configs[name] if entry["split"] == split]
    patterns = [str(one) for path in paths for one in (path if isinstance(path, list) else [path])]
    chosen = [one for one in data if any(fnmatch.fnmatchcase(one, pattern) for pattern in patterns)]
    if not chosen:
        there = ", ".join(sorted({str(entry["split"]) for entry in configs[name]}))
        raise ConfigurationError(f"{where}: config '{name}' has no files of split '{split}' (it has {there})")
    return chosen


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more
