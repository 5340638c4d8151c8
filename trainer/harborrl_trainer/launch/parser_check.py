"""Lets the image's own Miles judge a command line, without a GPU: `python parser_check.py < question.json`.

A file of its own: Python 3.10, standard library, and whatever Miles the interpreter finds (`/root/miles` and
`/root/Megatron-LM` on PYTHONPATH). The question is `{"argv": ["train.py", ...], "env": {...}, "depth": "parse" |
"validate"}`, argv and env as `argv` prints them; the answer is one JSON object on standard output:

    {"verdict": "accepted" | "refused" | "unknown", "stage": "import" | "functions" | "parse" | "validate",
     "message": "..."}

`parse` runs argparse alone, with the flags of the functions that argv names. `validate` goes on with Miles' and
Megatron's own checks, which read the model's config.json and look for paths. An assertion or a wrong value refuses;
what fails for want of a GPU or a package is `unknown`, since it says nothing about the command line. Stage `functions`
is an error of a function that argv names, in its module or in the flags that it adds, and not argparse's.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import traceback
from typing import Any

HOPPER = (9, 0)
"""Megatron asks the GPU for its generation; what judges a command line has none, and the images are for this one on."""

REFUSALS = (AssertionError, ValueError, FileNotFoundError)
"""What Miles raises about arguments."""


def check(argv: list[str], depth: str = "parse", env: dict[str, str] | None = None) -> dict[str, str]:
    """The answer for `argv`; never raises."""
    sys.argv = list(argv)
    os.environ.update(env or {})
    said = io.StringIO()
    stage = "import"
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            from megatron.training import arguments as megatron  # noqa: PLC0415 - judged as a stage of its own
            from miles.utils import arguments  # noqa: PLC0415 - same

            _pose_as_hopper(megatron)
            stage = "parse"
            megatron.parse_args(extra_args_provider=arguments.get_miles_extra_args_provider(None))
            if depth == "validate":
                stage = "validate"
                arguments.parse_args()
    except SystemExit as leaving:
        if leaving.code in (0, None):
            return _answer("unknown", stage, "the parser left before it judged")
        return _answer("refused", stage, _last(said.getvalue()))
    except REFUSALS as error:
        if stage == "import":
            return _answer("unknown", stage, _said(error))
        return _answer("refused", "functions" if stage == "parse" else stage, _said(error))
    except BaseException as error:  # noqa: BLE001 - a missing GPU or package may raise anything
        return _answer("unknown", stage, _said(error))
    return _answer("accepted", stage, "")


def _pose_as_hopper(megatron: Any) -> None:
    import torch  # noqa: PLC0415 - Megatron has imported it

    if not torch.cuda.is_available():
        vars(torch.cuda).update(get_device_capability=lambda *_: HOPPER)
        vars(megatron).update(get_device_arch_version=lambda: HOPPER[0])


def _answer(verdict: str, stage: str, message: str) -> dict[str, str]:
    return {"verdict": verdict, "stage": stage, "message": message[:2000]}


def _said(error: BaseException) -> str:
    where = traceback.extract_tb(error.__traceback__)[-1]
    text = " ".join(str(error).split()) or where.line or ""
    return f"{type(error).__name__}: {text} ({where.filename.rsplit('/', 1)[-1]}:{where.lineno})"


def _last(text: str) -> str:
    """The parser's own sentence is its last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "refused without a word"


if __name__ == "__main__":
    question = json.load(sys.stdin)
    sys.stdout.write(json.dumps(check(question["argv"], question.get("depth", "parse"), question.get("env"))) + "\n")
