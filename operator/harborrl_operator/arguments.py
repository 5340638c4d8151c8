"""Raw engine flags and YAML, read as far as admission depends on them."""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from harborrl_operator.miles_table import RESERVED
from harborrl_operator.models.framework import FrameworkConfig
from harborrl_operator.models.trainer import TrainerSpec

LARGEST = 1_000_000_000
"""Far above any count that an engine takes, and small enough for every sum and product of counts."""


class InvalidArgumentsError(ValueError):
    """Raw flags or YAML that cannot be read; the message names the field."""


def parse_flags(text: str) -> list[str]:
    """HarborFrameworkConfig's rule: cut each line at the first `#`, drop empty lines, split as POSIX shell words."""
    lines = (line.split("#", 1)[0].strip() for line in text.splitlines())
    return shlex.split("\n".join(line for line in lines if line))


COUNTS = (
    "rollout_batch_size",
    "n_samples_per_prompt",
    "global_batch_size",
    "over_sampling_batch_size",
    "async_max_concurrent_samples",
)
"""Arguments on which admission depends; all are read at once, so that nothing unreadable is met later in a pass."""

KNOWN = frozenset(
    {
        *COUNTS,
        *FrameworkConfig.model_fields,
        "agent_server_url",
        "async_unused_samples_handler",
        "context_parallel_size",
        "custom_agent_function_path",
        "custom_generate_function_path",
        "custom_rm_path",
        "decoder_first_pipeline_num_layers",
        "decoder_last_pipeline_num_layers",
        "dynamic_sampling_filter_path",
        "entropy_coef",
        "eps_clip_high",
        "eval_prompt_data",
        "expert_model_parallel_size",
        "expert_tensor_parallel_size",
        "fully_async",
        "kl_loss_coef",
        "kl_loss_type",
        "lora_alpha",
        "lora_rank",
        "max_seq_len",
        "max_tokens_per_gpu",
        "max_weight_staleness",
        "n_samples_per_eval_prompt",
        "num_gpus_per_node",
        "num_steps_per_rollout",
        "over_sampling_filter_path",
        "partial_rollout",
        "pause_generation_mode",
        "pipeline_model_parallel_size",
        "prompt_data",
        "recompute_logprobs_via_prefill",
        "ref_load",
        "rollout_function_path",
        "rollout_max_prompt_len",
        "rollout_num_gpus_per_engine",
        "rollout_stop",
        "rollout_top_k",
        "rollout_top_p",
        "target_modules",
        "tensor_model_parallel_size",
        "update_weight_transfer_mode",
        "use_dynamic_batch_size",
        "use_kl_loss",
        "use_rollout_logprobs",
        "use_rollout_routing_replay",
        "use_tis",
        *(flag.removeprefix("--").replace("-", "_") for flag in RESERVED),
    }
)
"""Names against which an abbreviation is completed: those that admission judges, and their near neighbours."""


@dataclass(frozen=True)
class RawArguments:
    """What the raw layers say, the strongest layer wins."""

    values: Mapping[str, Any]
    """By argument name in snake_case; None for a bare flag."""
    counts: Mapping[str, int]
    """Those of COUNTS that are set."""
    reserved: tuple[str, ...]
    """Reserved flags that the user wrote, each with what decides it."""


def read_raw_arguments(trainer: TrainerSpec) -> RawArguments:
    """Reads recipeArgs < extraArgs < customConfigYaml; raises InvalidArgumentsError naming the field."""
    values: dict[str, Any] = {}
    reserved: list[str] = []
    for field, text in (("recipeArgs", trainer.recipe_args), ("extraArgs", trainer.extra_args)):
        try:
            words = parse_flags(text)
        except ValueError as error:
            raise InvalidArgumentsError(f"trainer.{field}: {error}") from None
        for flag, value in _pairs(words):
            values[_full_name(flag)] = value
            if home := _home_of(flag):
                reserved.append(f"trainer.{field}: {flag} is decided by {home}")
    for key, value in _mapping(trainer.custom_config_yaml).items():
        values[_snake(str(key))] = value
        if home := RESERVED.get(f"--{_snake(str(key)).replace('_', '-')}"):
            reserved.append(f"trainer.customConfigYaml: {key} is decided by {home}")
    counts = {name: _count(name, values[name]) for name in COUNTS if values.get(name) is not None}
    return RawArguments(values=values, counts=counts, reserved=tuple(reserved))


def _count(name: str, value: Any) -> int:
    """Digits alone, at most ten: YAML also yields infinities, booleans and numbers that are too long to print."""
    count = int(value) if isinstance(value, str) and re.fullmatch("[0-9]{1,10}", value) else value
    if type(count) is int and 1 <= count <= LARGEST:
        return count
    said = repr(value)[:80] if isinstance(value, str | float | bool) else f"a {type(value).__name__}"
    raise InvalidArgumentsError(f"{name} must be an integer from 1 to {LARGEST}, it is {said}")


def _home_of(flag: str) -> str | None:
    """What decides a reserved flag, also an abbreviated one: argparse takes any unique beginning of a flag's name."""
    name = f"--{_snake(flag).replace('_', '-')}"
    if len(name) == len("--"):
        return None
    return RESERVED.get(name) or next((home for known, home in RESERVED.items() if known.startswith(name)), None)


def _snake(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_")


def _full_name(flag: str) -> str:
    """As argparse completes a beginning: to the one name that begins so; what fits several it refuses itself."""
    name = _snake(flag)
    begun = [known for known in KNOWN if known.startswith(name)]
    return begun[0] if name not in KNOWN and name and len(begun) == 1 else name


def _pairs(words: list[str]) -> Iterator[tuple[str, str | None]]:
    for index, word in enumerate(words):
        if not word.startswith("--"):
            continue
        flag, equals, value = word.partition("=")
        if equals:
            yield flag, value
        else:
            following = words[index + 1] if index + 1 < len(words) else "--"
            yield flag, None if following.startswith("--") else following


_QUOTED = re.compile(r"(['\"]).*\1")


def _without_text(error: yaml.MarkedYAMLError) -> str:
    """Line and problem, never the text that PyYAML quotes: a secret that stands there by mistake would reach status."""
    line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
    return line + _QUOTED.sub("…", " ".join((error.problem or "cannot be parsed").split()))


def _mapping(text: str) -> Mapping[str, Any]:
    try:
        loaded = yaml.safe_load(text) if text.strip() else {}
    except RecursionError:
        raise InvalidArgumentsError("trainer.customConfigYaml is nested too deeply") from None
    except yaml.MarkedYAMLError as error:
        raise InvalidArgumentsError(f"trainer.customConfigYaml: {_without_text(error)}") from None
    except Exception as error:  # noqa: BLE001 - PyYAML's constructors raise anything: KeyError for `!!bool x`, say
        said = _QUOTED.sub("…", " ".join(str(error).split())) or type(error).__name__
        raise InvalidArgumentsError(f"trainer.customConfigYaml: {said}") from None
    if loaded is None:
        return {}
    if not isinstance(loaded, Mapping):
        raise InvalidArgumentsError("trainer.customConfigYaml must be a mapping of argument names to values")
    return loaded
