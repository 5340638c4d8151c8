"""Why a row is left out, as a closed list: a report counts by these words, and docs/data.md explains each."""

from enum import StrEnum


class Cause(StrEnum):
    NOT_JSON = "not JSON"
    TOO_LONG = "line too long"
    NOT_AN_OBJECT = "not an object"
    NO_ID = "no instance id"
    INVALID_ID = "invalid instance id"
    NO_PROMPT = "no prompt"
    EMPTY_PROMPT = "empty prompt"
    PROMPT_NOT_TEXT = "prompt is not text"
    UNREADABLE = "cannot be read"
    NO_TASK = "no task directory"
    DUPLICATE = "duplicate instance id"
    IN_OUTPUT = "already in the output"
    NO_JSON_FORM = "value without a JSON form"


MEANING = {
    Cause.NOT_JSON: "the line is no JSON value in UTF-8 (NaN, Infinity and halves of surrogate pairs are none)",
    Cause.TOO_LONG: "the line has more than 64 MiB",
    Cause.NOT_AN_OBJECT: "the value is no JSON object",
    Cause.NO_ID: "neither text nor a whole number under `instance_id` or `task_id` (or `--id-key`)",
    Cause.INVALID_ID: "the id is no name of a task directory: letters, digits, `.`, `_` and `-`, beginning with a"
    " letter or digit, at most 128",
    Cause.NO_PROMPT: "none of the prompt's keys is there (with `--prompt-key`: that key)",
    Cause.EMPTY_PROMPT: "the prompt is empty or blank",
    Cause.PROMPT_NOT_TEXT: "the prompt is neither text nor a list of messages with text contents",
    Cause.UNREADABLE: "the task's instruction cannot be read as UTF-8",
    Cause.NO_TASK: "`--task-root` has no directory of that name with a `task.toml` or an instruction",
    Cause.DUPLICATE: "an earlier row of this input has the same id",
    Cause.IN_OUTPUT: "the file that is appended to has the id already",
    Cause.NO_JSON_FORM: "a value deep inside that JSON cannot hold, such as bytes that are no UTF-8",
}
