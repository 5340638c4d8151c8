"""`python3 -m harborrl_trainer.miles_engine.parser_preflight QUESTION RESULT`: in Miles' image, before a GPU is held.

Beside the preflight itself, in a container of the trainer's image without GPUs. Leaves findings in the form of the
preflight's (tests/contract/preflight.json), and ends with 0 whatever it found.
"""

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from harborrl_trainer.errors import ConfigurationError
from harborrl_trainer.failures import one_line
from harborrl_trainer.miles_engine import asked
from harborrl_trainer.miles_engine.asked import Asked
from harborrl_trainer.miles_engine.checkout import check_imports, check_source, root_of
from harborrl_trainer.miles_engine.world import Answer, Question, ask_parser

SCHEMA_VERSION = 1
"""Of the preflight's result (`harborrl_trainer.preflight.findings`)."""
_REMEDY = "Correct trainer.config, recipeArgs, extraArgs, customConfigYaml or the image."


def result(question: Asked, environment: Mapping[str, str], judge: Callable[[Question], Answer]) -> dict[str, Any]:
    """The image, then what its parser says of the arguments.

    Only argparse refuses. A function of the user's own may look for a GPU or for files of its own; what Miles' and
    Megatron's further checks object to is a warning: they are meant for a machine with GPUs, and an objection of theirs
    to this one would keep a job out for good.
    """
    if not question.argv:
        return _document([])
    try:
        root = root_of(question.argv[0], question.roots, environment)
        check_source(root, question.commit)
        check_imports(root, question.env.get("PYTHONPATH", ""))
    except ConfigurationError as error:
        return _document([_finding("EngineUnavailable", "refuse", f"{error}.")])
    return _document(_of_parser(judge(Question(question.argv, {**environment, **question.env}, root, "validate"))))


def _of_parser(answer: Answer) -> list[dict[str, str]]:
    if answer.verdict == "accepted":
        return []
    if answer.verdict == "refused" and answer.stage == "parse":
        said = f"Miles' own parser refuses the arguments: {answer.said}. {_REMEDY}"
        return [_finding("ArgumentConflict", "refuse", said)]
    if answer.stage == "functions":
        said = f"A function that the arguments name fails without a GPU and the trainer's own volumes: {answer.said}."
        return [_finding("ParserNotAsked", "warn", said + " The driver asks Miles' parser at its start.")]
    if answer.verdict == "refused":
        said = f"Miles' own checks object to the arguments, and would end the run: {answer.said}. {_REMEDY}"
        return [_finding("ArgumentConflict", "warn", said)]
    said = f"Miles' own parser could not be asked without a GPU ({answer.said}): the driver asks it at its start."
    return [_finding("ParserNotAsked", "warn", said)]


def _finding(reason: str, severity: str, message: str) -> dict[str, str]:
    return {"check": "I7", "reason": reason, "severity": severity, "message": one_line(message)}


def _document(findings: list[dict[str, str]]) -> dict[str, Any]:
    refused = any(finding["severity"] == "refuse" for finding in findings)
    return {"schemaVersion": SCHEMA_VERSION, "ok": not refused, "findings": findings, "facts": {}}


def main(arguments: list[str]) -> int:
    question, place = map(Path, arguments)
    text = json.dumps(result(asked.load(question), os.environ, ask_parser))
    sys.stdout.write(text + "\n")
    place.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
