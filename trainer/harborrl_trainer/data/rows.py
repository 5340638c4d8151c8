"""One row as people have it -> one row as the engines read it: `{prompt, metadata: {instance_id, ...}}`.

Three shapes are told apart by their keys (docs/data.md): a finished row, and flat rows of SWE-bench's or
Terminal-Bench's columns. All columns are kept as metadata but those that would be taken for something else.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from harborrl_trainer.data.causes import Cause
from harborrl_trainer.prompt_rows import INSTANCE_ID
from harborrl_trainer.rollout.reserved import RESERVED

STRIPPED_KEYS = RESERVED
"""Never taken over from a data set: what both engines would mistake for a trial's own."""

PROMPT_KEYS = ("problem_statement", "instruction", "base_description", "prompt")
"""In this order; the first that holds something is the prompt of a flat row."""

ID_KEYS = ("instance_id", "task_id")
"""In this order."""

type Shape = Literal["finished", "swe-bench", "terminal-bench", "other"]


class Finished(NamedTuple):
    """A row that can be trained on."""

    instance_id: str
    document: dict[str, Any]
    shape: Shape


@dataclass
class Converter:
    """Converts rows and counts what it stripped. A row that is given to it is its own to change."""

    split: str = "train"
    agent_name: str | None = None
    """Unset: a row's own `agent_name` stays, and without one the agent server's default runs."""
    prompt_key: str | None = None
    """Set: this key alone. A fallback would train on another text than the one asked for."""
    id_key: str | None = None
    stripped: Counter[str] = field(default_factory=Counter)

    def convert(self, row: Any) -> Finished | Cause:
        if type(row) is not dict:
            return Cause.NOT_AN_OBJECT
        inner: Any = row.get("metadata")
        finished = type(inner) is dict and "prompt" in row and self._id_of(inner) is not None
        metadata: dict[str, Any] = inner if finished else row
        instance_id = self._id_of(metadata)
        if instance_id is None:
            return Cause.NO_ID
        # A number is as good as its digits; True is none.
        if type(instance_id) is int:
            instance_id = str(instance_id)
        if type(instance_id) is not str or not INSTANCE_ID.fullmatch(instance_id):
            return Cause.INVALID_ID
        prompt = self._prompt(row, metadata) if finished else self._flat_prompt(row)
        if type(prompt) is Cause:
            return prompt
        shape = "finished" if finished else _shape(row)
        self._prepare(metadata, instance_id)
        return Finished(instance_id, row if finished else {"prompt": prompt, "metadata": metadata}, shape)

    def _id_of(self, metadata: dict[str, Any]) -> Any:
        """None where there is nothing."""
        for key in ID_KEYS if self.id_key is None else (self.id_key,):
            value = metadata.get(key)
            if value is not None and value != "":
                return value
        return None

    def _prompt(self, row: dict[str, Any], metadata: dict[str, Any]) -> Any:
        if self.prompt_key is None:
            return _checked(row["prompt"])
        holder = row if self.prompt_key in row else metadata
        if self.prompt_key not in holder:
            return Cause.NO_PROMPT
        row["prompt"] = holder[self.prompt_key]
        return _checked(row["prompt"])

    def _flat_prompt(self, row: dict[str, Any]) -> Any:
        if self.prompt_key is not None:
            return _checked(row[self.prompt_key]) if self.prompt_key in row else Cause.NO_PROMPT
        found: Any = Cause.NO_PROMPT
        for key in PROMPT_KEYS:
            if key in row:
                found = row[key]
                if found:
                    break
        return found if found is Cause.NO_PROMPT else _checked(found)

    def _prepare(self, metadata: dict[str, Any], instance_id: str) -> None:
        if not STRIPPED_KEYS.isdisjoint(metadata):
            for key in STRIPPED_KEYS & metadata.keys():
                del metadata[key]
                self.stripped[key] += 1
        metadata["instance_id"] = instance_id
        metadata["split"] = self.split
        if self.agent_name is not None:
            metadata["agent_name"] = self.agent_name


def _checked(prompt: Any) -> Any:
    """Text as it is, messages as they are: both engines take both."""
    if type(prompt) is str:
        return prompt if prompt and not prompt.isspace() else Cause.EMPTY_PROMPT
    if prompt is None or prompt == []:
        return Cause.EMPTY_PROMPT
    if type(prompt) is list and all(type(one) is dict and type(one.get("content")) is str for one in prompt):
        return prompt if any(one["content"].strip() for one in prompt) else Cause.EMPTY_PROMPT
    return Cause.PROMPT_NOT_TEXT


def _shape(row: dict[str, Any]) -> Shape:
    if "repo" in row and "base_commit" in row:
        return "swe-bench"
    return "terminal-bench" if "task_id" in row else "other"
