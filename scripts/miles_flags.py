"""Writes the table of flags that a Miles commit knows, from its own parser.

    python scripts/miles_flags.py --miles DIR --megatron DIR --sglang DIR --source "..." FILE

DIR are checkouts (`git archive COMMIT | tar x -C DIR`); SGLang's may be an unpacked wheel of the release that the image
is built on. Needs torch. FILE is `trainer/harborrl_trainer/launch/data/flags-<short commit>.json`.
"""

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path

import miles_parser

AGENTIC = "miles.rollout.generate_hub.agentic_tool_call.generate"


def kind_of(action: argparse.Action) -> str:
    """`bare`, or the value's type; `+` many, `?` optional, `*2` two of them."""
    if action.nargs == 0:
        return "bare"
    name = getattr(action.type, "__name__", "str") if action.type else "str"
    name = name if name in ("int", "float") else "str"
    if isinstance(action, argparse.BooleanOptionalAction):
        return "bare"
    match action.nargs:
        case None:
            return name
        case int():
            return f"{name}*{action.nargs}"
        case "?":
            return f"{name}?"
        case _:
            return f"{name}+"


def flags_of(parser: argparse.ArgumentParser) -> dict[str, str]:
    named = parser._option_string_actions  # noqa: SLF001 - argparse has no public list of its flags
    return {
        flag: kind_of(action) for flag, action in sorted(named.items()) if flag.startswith("--") and flag != "--help"
    }


def choices_of(parser: argparse.ArgumentParser) -> dict[str, list[str]]:
    """Of Miles' and Megatron's flags; SGLang's are of a release, and those that a stand-in gives are none."""
    named = parser._option_string_actions  # noqa: SLF001 - argparse has no public list of its flags
    return {
        flag: [str(choice) for choice in action.choices]
        for flag, action in sorted(named.items())
        if flag.startswith("--") and action.choices is not None and "sglang-" not in flag
        if all(type(choice) in (str, int) for choice in action.choices)
    }


def attributes_of(parser: argparse.ArgumentParser) -> dict[str, str]:
    """Flag of Miles or Megatron -> the attribute that it sets, where that has another name."""
    named = parser._option_string_actions  # noqa: SLF001 - argparse has no public list of its flags
    return {
        flag: action.dest
        for flag, action in sorted(named.items())
        if flag.startswith("--") and flag.removeprefix("--").replace("-", "_") != action.dest and "sglang-" not in flag
    }


def render(source: str, table: Mapping[str, Mapping[str, object]]) -> str:
    return json.dumps({"source": source, **table}, indent=1) + "\n"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--miles", "--megatron", "--sglang"):
        options.add_argument(name, type=Path, required=True)
    options.add_argument("--source", required=True, help="commits and releases that were read, for the file's reader")
    options.add_argument("file", type=Path)
    asked = options.parse_args()
    miles_parser.prepare(asked.miles, asked.megatron, asked.sglang)
    plain, whole = miles_parser.parsers(["--custom-generate-function-path", AGENTIC, "--rollout-batch-size", "1"])
    megatron, everything = flags_of(plain), flags_of(whole)
    sglang = {flag: kind for flag, kind in everything.items() if flag.startswith("--sglang-")}
    evaluation = {flag for flag in everything if flag.startswith("--eval-sglang-")}
    miles = {
        flag: kind
        for flag, kind in everything.items()
        if megatron.get(flag) != kind and flag not in sglang and flag not in evaluation
    }
    tables: dict[str, Mapping[str, object]] = {
        "miles": miles,
        "megatron": megatron,
        "sglang": sglang,
        "choices": choices_of(whole),
        "attributes": attributes_of(whole),
    }
    asked.file.write_text(render(asked.source, tables))
    sys.stdout.write(f"{len(miles)} of Miles, {len(megatron)} of Megatron, {len(sglang)} of SGLang\n")


if __name__ == "__main__":
    main()
