"""Miles' arguments as far as a run without GPUs has a use for them, in Miles' order of judgement.

Known flags are those of our table of Miles' versions, in `flags/` beside `train.py` or where MILES_SHAPED_FLAGS says.
An unknown one ends the process with 2, as argparse does.
"""

import argparse
import json
import os
import re
from pathlib import Path
from typing import Any

import yaml
from megatron.training.arguments import Extend
from megatron.training.arguments import parse_args as megatron_parse_args
from miles_shaped import saving, version

_TYPED: dict[str, dict[str, Any]] = {
    "--start-rollout-id": {"type": int},
    "--num-rollout": {"type": int, "required": True},
    "--rollout-batch-size": {"type": int, "default": 1},
    "--n-samples-per-prompt": {"type": int, "default": 1},
    "--save-interval": {"type": int},
    "--save": {},
    "--load": {},
    "--ref-load": {},
    "--hf-checkpoint": {},
    "--megatron-to-hf-mode": {"default": "raw"},
    "--lora-rank": {"type": int, "default": 0},
    "--lora-adapter-path": {},
    "--prompt-data": {"required": True},
    "--input-key": {"default": "input"},
    "--metadata-key": {"default": "metadata"},
    "--rollout-temperature": {"type": float, "default": 1.0},
    "--rollout-max-response-len": {"type": int, "default": 1024},
    "--max-seq-len": {"type": int},
    "--dump-details": {},
    "--actor-num-nodes": {"type": int, "default": 1},
    "--actor-num-gpus-per-node": {"type": int, "default": 8},
    "--custom-generate-function-path": {},
    "--custom-agent-function-path": {},
    "--custom-rm-path": {},
    "--custom-config-path": {},
    "--dynamic-sampling-filter-path": {},
    "--session-server-port": {"type": int, "nargs": "+"},
    "--use-session-server": {"nargs": "?", "const": "v1"},
}
_BARE = ("--no-save-optim", "--no-load-optim", "--no-load-rng", "--finetune", "--fully-async", "--colocate")
_NEW: dict[str, dict[str, Any]] = {"--save-trigger-sentinel": {}}
"""Flags that 9a00364 does not know."""


def get_miles_extra_args_provider(_add_custom_arguments: Any = None) -> Extend:
    return _with_flags


def _with_flags(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    for flag, options in {**_TYPED, **({} if version.is_old() else _NEW)}.items():
        parser.add_argument(flag, **options)
    for flag in _BARE:
        parser.add_argument(flag, action="store_true")
    for flag, options in _table().items():
        if flag not in {*_TYPED, *_BARE, *_NEW}:
            parser.add_argument(flag, **options)
    return parser


def parse_args() -> argparse.Namespace:
    args = megatron_parse_args(get_miles_extra_args_provider())
    args.save_trigger_sentinel = getattr(args, "save_trigger_sentinel", None)
    args.world = max(args.actor_num_nodes * args.actor_num_gpus_per_node, 1)
    _validate(args)
    return args


def _table() -> dict[str, dict[str, Any]]:
    """Flag -> how argparse is told of it."""
    folder = Path(os.environ.get("MILES_SHAPED_FLAGS") or version.ROOT / "flags")
    path = folder / f"flags-{version.commit()[:7]}.json"
    if not path.is_file():
        return {}
    tables = json.loads(path.read_text())
    known: dict[str, str] = {**tables["sglang"], **tables["megatron"], **tables["miles"]}
    return {flag: _option(kind) for flag, kind in known.items()}


def _option(kind: str) -> dict[str, Any]:
    """`kind`: bare, or int, float, str with `+` many, `?` optional, `*2` two."""
    if kind == "bare":
        return {"action": "store_true"}
    types = {"int": int, "float": float}
    counts: dict[str, Any] = {"+": "+", "?": "?", "*2": 2, "": None}
    name = re.match(r"[a-z]+", kind)
    base = name[0] if name else "str"
    return {"type": types.get(base, str), "nargs": counts.get(kind.removeprefix(base), "*")}


def _validate(args: argparse.Namespace) -> None:
    """In this order, in which the configuration file has the last word."""
    assert args.num_rollout > 0, "num_rollout must be positive"  # noqa: S101 - as Miles says it
    if args.ref_load and not Path(args.ref_load).exists():
        raise FileNotFoundError(f"ref_load {args.ref_load} does not exist, please check the path.")
    bridge = args.megatron_to_hf_mode == "bridge"
    if bridge and version.is_old():
        args.load = args.load or args.ref_load or args.hf_checkpoint
        args.start_rollout_id = 0
    elif saving.tracker(args.load) is None:
        args.load = args.ref_load or (args.hf_checkpoint if bridge else None)
        args.start_rollout_id = 0
    if args.save_interval is not None:
        assert args.save is not None, "'--save' is required when save_interval is set."  # noqa: S101 - as Miles says it
    if args.custom_config_path:
        for name, value in (yaml.safe_load(Path(args.custom_config_path).read_text()) or {}).items():
            setattr(args, name, value)
    if args.start_rollout_id is None:
        said = saving.tracker(args.load)
        args.start_rollout_id = int(said) + 1 if said and said.isdecimal() else 1
