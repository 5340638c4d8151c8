"""Miles' own argument parser on a machine without GPUs: what is not installed is stood in.

Used by `scripts/miles_flags.py`, which writes the flag tables, and by the test that lets Miles judge our argv:

    python scripts/miles_parser.py --miles DIR (--megatron DIR --sglang DIR | --table FILE) < questions.json

What is real: every module of `miles`, every module of `megatron` (which wants torch), `sglang.srt.server_args` and
`sglang.srt.arg_groups`. What is stood in by an object that answers anything: all other modules of SGLang, and every
module that is not installed and that one of the three asks for (sglang_router, miles_megatron_plugins, omegaconf ...).
A choice that a stand-in gives (SGLang's list of reasoning parsers, say) therefore admits any word. With `--table` the
parsers of Megatron and SGLang are made from a flag table instead: names and kinds are right, choices are not known.
"""

import argparse
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import sys
import types
from collections.abc import Iterator, MutableSequence, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any, override

REAL_SGLANG = ("sglang.srt.server_args", "sglang.srt.arg_groups", "sglang.srt.environ")
PARSER_CHECK = Path(__file__).resolve().parents[1] / "trainer/harborrl_trainer/launch/parser_check.py"

OF_MILES = ("--sglang-router-", "--sglang-server-concurrency", "--sglang-config")
"""Flags with SGLang's prefix that are Miles' own."""

ASKING = frozenset({"miles", "miles_plugins", "sglang"})
"""Whose missing imports are stood in; Megatron looks for optional packages and does well without them."""
ALWAYS = frozenset({"miles_megatron_plugins"})
"""What Megatron asks for and cannot do without."""


class AnyWord(str):
    """Equals every word: the one choice of a list that a stand-in gives."""

    __slots__ = ()

    @override
    def __eq__(self, _: object) -> bool:
        return True

    @override
    def __ne__(self, _: object) -> bool:
        return False

    @override
    def __hash__(self) -> int:
        return 0


class Anything:
    """Answers every attribute, call, index and operator, holds every word, and yields one that equals all."""

    def __init__(self, *_: object, **__: object) -> None:
        return

    def __call__(self, *arguments: Any, **named: object) -> Any:
        is_decorator = len(arguments) == 1 and callable(arguments[0]) and not named
        return arguments[0] if is_decorator else Anything()

    def __getattr__(self, name: str) -> "Anything":
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Anything()

    def __getitem__(self, _: object) -> "Anything":
        return Anything()

    def __iter__(self) -> Iterator[Any]:
        return iter((AnyWord("anything"),))

    def __contains__(self, _: object) -> bool:
        return True

    def __add__(self, _: object) -> "Anything":
        return self

    __radd__ = __add__

    def __or__(self, _: object) -> type:
        return object

    __ror__ = __or__

    def __mro_entries__(self, _: object) -> tuple[type, ...]:
        return (object,)


class _AnyClass(type):
    def __getattr__(cls, name: str) -> Anything:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Anything()

    def __iter__(cls) -> Iterator[Any]:
        return iter(())


class _StandIn(types.ModuleType):
    __path__: MutableSequence[str] = []  # noqa: RUF012 - a package without files, for every stand-in

    @override
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        is_class = name[:1].isupper() and not name.isupper()
        value = _AnyClass(name, (Anything,), {}) if is_class else Anything()
        setattr(self, name, value)
        return value


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Stands in for SGLang's other modules, and for what one of ours asks for and nobody has."""

    def __init__(self, *, first: bool) -> None:
        self.first = first
        self.tops: set[str] = set()

    @override
    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        top = fullname.partition(".")[0]
        if self.first:
            stands_in = top == "sglang" and not fullname.startswith(REAL_SGLANG)
        else:
            stands_in = top not in sys.stdlib_module_names and (top in self.tops | ALWAYS or _caller() in ASKING)
        if not stands_in:
            return None
        self.tops.add(top)
        return ModuleSpec(fullname, self, is_package=True)

    @override
    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        return _StandIn(spec.name)

    @override
    def exec_module(self, module: types.ModuleType) -> None:
        return


def _caller() -> str:
    """Top-level package of the module that imports."""
    frame = sys._getframe(2)  # noqa: SLF001 - only the frame tells who asks
    while frame.f_back is not None and "importlib" in frame.f_code.co_filename:
        frame = frame.f_back
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def prepare(miles: Path, megatron: Path, sglang: Path) -> None:
    """Makes the three importable from these directories (checkouts, or an unpacked wheel of SGLang)."""
    sys.path[:0] = [str(miles), str(megatron)]
    sys.meta_path.insert(0, _Finder(first=True))
    sys.meta_path.append(_Finder(first=False))
    for name in ("sglang", "sglang.srt"):
        package = types.ModuleType(name)
        package.__path__ = [str(sglang / name.replace(".", "/"))]
        sys.modules[name] = package
    _stand_in_for_the_router()
    _stand_in_for_our_wrapper()


def prepare_with_table(miles: Path, table: Path) -> None:
    """Real Miles alone: the parsers of the other two are made from a table that `miles_flags.py` wrote."""
    known = json.loads(table.read_text())
    sys.path.insert(0, str(miles))
    sys.meta_path.append(_Finder(first=False))

    def add_megatron_arguments(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
        return _add_from_table(parser, known["megatron"], "--")

    def parse_args(extra_args_provider: Any) -> argparse.Namespace:
        parser = argparse.ArgumentParser(allow_abbrev=False)
        parsed: argparse.Namespace = extra_args_provider(add_megatron_arguments(parser)).parse_args()
        return parsed

    class ServerArgs:
        @staticmethod
        def add_cli_args(parser: argparse.ArgumentParser) -> None:
            theirs = {flag: kind for flag, kind in known["sglang"].items() if not flag.startswith(OF_MILES)}
            _add_from_table(parser, theirs, "--sglang-")

    _module("megatron.training.arguments", add_megatron_arguments=add_megatron_arguments, parse_args=parse_args)
    _module("sglang.srt.server_args", ServerArgs=ServerArgs)
    _stand_in_for_the_router()
    _stand_in_for_our_wrapper()


def _module(name: str, **members: object) -> None:
    """Puts a module and its packages, whose other members are stood in, among the loaded ones."""
    parts = name.split(".")
    for length in range(1, len(parts) + 1):
        sys.modules.setdefault(".".join(parts[:length]), _StandIn(".".join(parts[:length])))
        if length > 1:
            setattr(
                sys.modules[".".join(parts[: length - 1])], parts[length - 1], sys.modules[".".join(parts[:length])]
            )
    vars(sys.modules[name]).update(members)


def _add_from_table(parser: argparse.ArgumentParser, flags: dict[str, str], prefix: str) -> argparse.ArgumentParser:
    types_of: dict[str, Any] = {"int": int, "float": float, "str": str}
    for flag, kind in flags.items():
        name = "--" + flag.removeprefix(prefix)
        if kind == "bare":
            parser.add_argument(name, action="store_true")
            continue
        base, many = kind.rstrip("+?").partition("*")[0], kind.partition("*")[2]
        nargs = int(many) if many else kind[-1] if kind[-1] in "+?" else None
        parser.add_argument(name, type=types_of[base], nargs=nargs)
    return parser


def _stand_in_for_the_router() -> None:
    """Of its many flags the two that Miles' own checks read."""

    class RouterArgs:
        @staticmethod
        def add_cli_args(parser: argparse.ArgumentParser, **_: object) -> None:
            parser.add_argument("--router-assignment-mode", type=str, default="random")
            parser.add_argument("--router-dp-aware", action="store_true")

    _module("sglang_router.launch_router", RouterArgs=RouterArgs)


def _stand_in_for_our_wrapper() -> None:
    """Where our package is not installed: a function with the flags of Miles' own, round which our wrapper is."""
    if importlib.util.find_spec("harborrl_trainer") is not None:
        return
    from miles.rollout.generate_hub.agentic_tool_call import generate  # noqa: PLC0415 - importable only now

    def wrapper() -> None:
        """Never called: only its flags are asked for."""

    vars(wrapper)["add_arguments"] = generate.add_arguments
    _module("harborrl_trainer.miles.generate", generate=wrapper, RolloutFn=type("RolloutFn", (), {}))


def parsers(words: Sequence[str] = ()) -> tuple[argparse.ArgumentParser, argparse.ArgumentParser]:
    """Megatron's parser, and the one that Miles makes of it with its own and SGLang's flags.

    `words` is the command line, which Miles looks at while it builds the parser (custom functions bring flags).
    """
    from megatron.training.arguments import add_megatron_arguments  # noqa: PLC0415 - importable only after prepare()
    from miles.utils.arguments import get_miles_extra_args_provider  # noqa: PLC0415 - same

    os.environ["MILES_EXPERIMENTAL_ROLLOUT_REFACTOR"] = "1"  # without it the commits of April ask no custom function
    sys.argv = ["train.py", *words]
    plain, whole = (argparse.ArgumentParser(allow_abbrev=False, conflict_handler="resolve") for _ in range(2))
    add_megatron_arguments(plain)
    add_megatron_arguments(whole)
    return plain, get_miles_extra_args_provider(None)(whole)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--miles", type=Path, required=True)
    options.add_argument("--megatron", type=Path)
    options.add_argument("--sglang", type=Path)
    options.add_argument("--table", type=Path)
    asked = options.parse_args()
    if asked.table:
        prepare_with_table(asked.miles, asked.table)
    else:
        prepare(asked.miles, asked.megatron, asked.sglang)
    spec = importlib.util.spec_from_file_location("parser_check", PARSER_CHECK)
    assert spec is not None  # noqa: S101 - the file is beside us
    assert spec.loader is not None  # noqa: S101 - same
    parser_check = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(parser_check)
    for question in json.load(sys.stdin):
        answer = parser_check.check(question["argv"], question.get("depth", "parse"), question.get("env"))
        sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
