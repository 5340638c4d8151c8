"""What flags of the command line may say: a wrong value is one line that names its flag, and nothing is started."""

import argparse
import math
import re
from pathlib import Path
from typing import NoReturn, override

from harborrl_agent_server.errors import StartupError

LONGEST_SECONDS = 10 * 365 * 86400
"""Ten years: what is longer is a slip of the hand, and sums of it are no numbers any more."""


IMPORT_PATH = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
"""`pkg.mod:Class`: any other environment or agent of Harbor's interface. Of the command line alone: no request names
code."""

OWN_NAME = re.compile(r"[a-z][a-z0-9-]{0,62}")


class Flags(argparse.ArgumentParser):
    @override
    def error(self, message: str) -> NoReturn:
        """Raises `StartupError` instead of printing the whole usage and leaving with a code of its own."""
        raise StartupError(f"{' '.join(message.split())}; --help lists the flags")


def number(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number") from error


def seconds(text: str) -> float:
    """Also days. Which of them may be 0 or less is the settings' matter."""
    try:
        value = float(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no number") from error
    if not math.isfinite(value) or value > LONGEST_SECONDS:
        raise argparse.ArgumentTypeError(f"{text} is no length of time; at most {LONGEST_SECONDS}")
    return value


def something(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError("is empty; leave the flag out, or say what is meant")
    return text


def folder(text: str) -> Path:
    return Path(something(text))


def own_agent(text: str) -> tuple[str, str]:
    name, _, place = text.partition("=")
    if not (OWN_NAME.fullmatch(name) and IMPORT_PATH.fullmatch(place)):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=pkg.mod:Class, the name of a-z, 0-9 and hyphens")
    return name, place
