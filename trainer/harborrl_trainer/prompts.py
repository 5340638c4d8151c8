"""The prompts of a run: read from a data set or from Harbor task directories, and the order they are drawn in.

Reading never stops at a bad row: what is wrong with it is kept beside the good rows, so that preflight can name all of
it at once. Nothing here depends on the process's random state: the order survives a change of machine and a resume.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harborrl_trainer.errors import ConfigurationError
from harborrl_trainer.job import Data, TaskSource
from harborrl_trainer.prompt_rows import BadRow, Prompt, id_problem, parse_row
from harborrl_trainer.rollout.reserved import RESERVED as RESERVED_KEYS

TASK_FILE = "task.toml"


@dataclass(frozen=True)
class PromptSet:
    prompts: tuple[Prompt, ...]
    bad_rows: tuple[BadRow, ...] = ()
    stripped: Mapping[str, int] = field(default_factory=dict)
    """Reserved key -> number of rows that carried it."""


def read_prompts(data: Data) -> PromptSet:
    """ConfigurationError when the source cannot be read at all; a bad row is reported, not raised."""
    if data.tasks is not None:
        return read_tasks(data.tasks)
    if data.jsonl is None:
        raise ConfigurationError("data: neither jsonl nor tasks is set; set exactly one in the HarborRLJob's spec")
    return read_jsonl(data.jsonl)


def read_jsonl(path: Path) -> PromptSet:
    """Rows `{prompt, metadata: {instance_id, ...}}`, one a line; blank lines are skipped."""
    if path.suffix not in ("", ".jsonl"):  # a pipe has none
        raise ConfigurationError(
            f"{path}: is no .jsonl, which the engines read; `harborrl data prepare --input {path.name} --output"
            f" {path.name.partition('.')[0]}.jsonl` makes one"
        )
    prompts: list[Prompt] = []
    bad: list[BadRow] = []
    stripped: Counter[str] = Counter()
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise ConfigurationError(
            f"{path}: cannot read the data set ({error.strerror}); "
            "correct data.jsonl or put the file on the tasks volume"
        ) from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        row = parse_row(line, f"{path.name}:{number}", index=len(prompts))
        if isinstance(row, BadRow):
            bad.append(row)
            continue
        stripped.update(RESERVED_KEYS & row.metadata.keys())
        prompts.append(_without_reserved(row))
    return PromptSet(tuple(prompts), tuple(bad), dict(stripped))


def read_tasks(source: TaskSource) -> PromptSet:
    """One prompt a task directory that the glob selects, sorted by name; the directory's name is its instance_id."""
    prompts: list[Prompt] = []
    bad: list[BadRow] = []
    for directory in task_directories(source):
        where = directory.relative_to(source.root).as_posix()
        try:
            text = (directory / source.instruction_path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            bad.append(BadRow(where, f"cannot read {source.instruction_path} ({_reason(error)})"))
            continue
        if not text.strip():
            bad.append(BadRow(where, f"{source.instruction_path} is empty", empty_prompt=True))
            continue
        if problem := id_problem(where):
            bad.append(BadRow(where, problem))
            continue
        prompts.append(Prompt(len(prompts), text, where, {"instance_id": where}, where))
    return PromptSet(tuple(prompts), tuple(bad))


def task_directories(source: TaskSource, setting: str = "data.tasks.glob") -> list[Path]:
    """Selected directories that are tasks (`is_task`).

    ConfigurationError when the glob cannot be listed, which names `setting`, where it was given.
    """
    try:
        found = sorted(source.root.glob(source.glob))
    except (OSError, ValueError, NotImplementedError, IndexError) as error:  # IndexError: the pattern `.`
        raise ConfigurationError(
            f"{source.root}: cannot list tasks with glob '{source.glob}' ({_reason(error)}); correct {setting}"
        ) from error
    return [path for path in found if is_task(path, source.instruction_path)]


def is_task(directory: Path, instruction_path: str) -> bool:
    """Whether it holds a task.toml or an instruction. Others (`lost+found`, `.git`) are no tasks.

    One that may not be entered counts, so that reading it names it as a bad row instead of leaving it out in silence.
    """
    try:
        return any((directory / name).is_file() for name in (TASK_FILE, instruction_path))
    except OSError:
        return directory.name != "lost+found" and not directory.name.startswith(".")


@dataclass(frozen=True)
class PromptOrder:
    """An endless, deterministic walk over `count` prompts; each epoch visits each prompt once.

    A position counts prompts drawn since the run began and is all that a checkpoint must keep to go on from there.
    """

    count: int
    seed: int
    shuffle: bool = True

    def epoch(self, number: int) -> list[int]:
        """Prompt indices in the order of epoch `number` (from 0)."""
        indices = list(range(self.count))
        return sorted(indices, key=lambda index: self._key(number, index)) if self.shuffle else indices

    def draw(self, position: int, size: int) -> list[int]:
        """The `size` prompt indices from `position` on; runs over the end of an epoch into the next."""
        if self.count < 1:
            raise ConfigurationError("data: there is no prompt to draw from; add rows or tasks")
        drawn: list[int] = []
        while len(drawn) < size:
            number, offset = divmod(position + len(drawn), self.count)
            drawn += self.epoch(number)[offset : offset + size - len(drawn)]
        return drawn

    def _key(self, epoch: int, index: int) -> bytes:
        # random.shuffle promises no stable order between Python versions; a digest does.
        return hashlib.sha256(f"{self.seed}:{epoch}:{index}".encode()).digest()


def _without_reserved(prompt: Prompt) -> Prompt:
    kept = {key: value for key, value in prompt.metadata.items() if key not in RESERVED_KEYS}
    return Prompt(prompt.index, prompt.text, prompt.instance_id, kept, prompt.where)


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
