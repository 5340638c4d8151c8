"""Values that are read as documented and yet are hardly meant: what `harborrl validate` and `argv` warn about."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields

from harborrl_trainer.config.harbor import HarborFrameworkConfig
from harborrl_trainer.config.miles import split_arguments


@dataclass(frozen=True)
class Quirk:
    """One warning: where, and what the value really means."""

    field: str
    message: str


def warnings_of(config: HarborFrameworkConfig) -> tuple[Quirk, ...]:
    """Every quirk of `config`, in the order of its fields' importance; never raises."""
    return (*_of_raw_text(config), *_of_placement(config), *_of_values(config))


def _of_raw_text(config: HarborFrameworkConfig) -> Iterator[Quirk]:
    for name in ("recipe_args", "extra_args"):
        text = getattr(config, name)
        for number, line in enumerate(text.splitlines(), 1):
            yield from (Quirk(name, f"line {number}: {said}") for said in _of_line(line))
        try:
            words = split_arguments(text)
        except ValueError as error:
            yield Quirk(name, f"cannot be split into words ({error}): close the quote, or leave the backslash out")
        else:
            yield from (Quirk(name, said) for said in _of_words(words))
    if not config.custom_config_yaml.strip() and config.custom_config_yaml:
        yield Quirk("custom_config_yaml", "holds blanks alone and is ignored")


def _of_line(line: str) -> Iterator[str]:
    kept = line.split("#", 1)[0]
    quote = _open_quote(kept)
    if "#" in line and quote:
        yield f"'#' begins a comment inside {quote} quotes too, and cuts the line after {kept.rstrip()!r}"
    elif "#" in line and kept and not kept[-1].isspace():
        yield f"'#' begins a comment in the middle of a word: {kept.split()[-1]!r} is what remains of it"
    elif quote:
        yield f"the {quote} quote goes on in the next line, whose blanks at both ends are lost"
    if kept.rstrip().endswith("\\") and not kept.rstrip().endswith("\\\\"):
        yield "a backslash at the end joins no lines: the next word begins with a newline. Leave the backslash out"
    if not quote and any(sign in kept for sign in ("$", "~", "*", "`")):
        yield "there is no shell: $NAME, ~, * and `command` stay as they are written"


def _of_words(words: list[str]) -> Iterator[str]:
    if words and not words[0].startswith("-"):
        yield f"begins with {words[0]!r}, which is no flag: Miles refuses a value without one"
    flags = [word.partition("=")[0] for word in words if word.startswith("--")]
    for flag in sorted({flag for flag in flags if flags.count(flag) > 1}):
        yield f"{flag} is given {flags.count(flag)} times: the last one wins"
    for word in words:
        if word.startswith("--") and " " in word.partition("=")[0]:
            yield f"{word!r} is one word because of its quotes: quote the value alone"


def _open_quote(text: str) -> str | None:
    """Kind of the quote that is open at the end of `text`, as a POSIX shell reads it."""
    quote: str | None = None
    escaped = False
    for sign in text:
        if escaped:
            escaped = False
        elif sign == "\\" and quote != "'":
            escaped = True
        elif quote is None and sign in "'\"":
            quote = sign
        elif sign == quote:
            quote = None
    return {"'": "single", '"': "double", None: None}[quote]


def _of_placement(config: HarborFrameworkConfig) -> Iterator[Quirk]:
    if config.colocate and config.rollout_num_gpus is not None:
        yield Quirk("rollout_num_gpus", f"{config.rollout_num_gpus} is ignored while colocate is true")
    if not config.colocate and config.rollout_num_gpus is not None and config.rollout_num_gpus < 1:
        yield Quirk("rollout_num_gpus", f"{config.rollout_num_gpus} means unset: the spare GPUs are used")
    if config.actor_nodes is not None and not 1 <= config.actor_nodes <= config.n_nodes:
        yield Quirk(
            "actor_nodes", f"{config.actor_nodes} of {config.n_nodes} nodes: no check stops it before Ray waits"
        )
    for resolve in (config.resolved_actor_nodes, config.resolved_rollout_num_gpus):
        try:
            resolve()
        except ValueError as error:
            yield Quirk("n_nodes", str(error))
            return


def _of_values(config: HarborFrameworkConfig) -> Iterator[Quirk]:
    for field in fields(config):
        value = getattr(config, field.name)
        if isinstance(value, float) and not math.isfinite(value):
            yield Quirk(field.name, f"{value} is no number that can be trained with")
        if value == "" and field.name in ("input_key", "label_key", "advantage_estimator", "lr_decay_style"):
            yield Quirk(field.name, "is empty, and an empty word goes to Miles")
    samples = config.rollout_batch_size * config.n_samples_per_prompt
    if config.global_batch_size < 1 or samples % config.global_batch_size:
        yield Quirk(
            "global_batch_size",
            f"{config.global_batch_size} does not divide {config.rollout_batch_size} x {config.n_samples_per_prompt} ="
            f" {samples} samples of a rollout: set it to {samples} or a divisor",
        )
    if config.n_samples_per_prompt == 1:
        yield Quirk("n_samples_per_prompt", "1 makes every advantage of grpo zero: nothing is learnt")
    if config.sandbox_idle_timeout_secs >= config.sandbox_timeout_secs:
        yield Quirk(
            "sandbox_idle_timeout_secs",
            f"{config.sandbox_idle_timeout_secs} never acts within a life of {config.sandbox_timeout_secs} s",
        )
