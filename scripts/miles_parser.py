"""Miles' own argument parser on a machine without GPUs: real Miles, real Megatron, real SGLang arguments, the rest stood in.

Used by `scripts/miles_flags.py`, which writes the flag tables, and by the test that lets Miles judge our argv.

What is real: every module of `miles`, every module of `megatron` (which wants torch), `sglang.srt.server_args` and
`sglang.srt.arg_groups`. What is stood in by an object that answers anything: all other modules of SGLang, and every
module that is not installed and that one of the three asks for (sglang_router, miles_megatron_plugins, omegaconf ...).
A choice that a stand-in gives (SGLang's list of reasoning parsers, say) therefore admits any word.
"""

import argparse
import importlib.abc
import importlib.machinery
import os
import sys
import types
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any, override

REAL_SGLANG = ("sglang.srt.server_args", "sglang.srt.arg_groups", "sglang.srt.environ")
ASKING = frozenset({"miles", "miles_plugins", "sglang"})
"""Whose missing imports are stood in; Megatron looks for optional packages and does well without them."""
ALWAYS = frozenset({"miles_megatron_plugins"})
"""What Megatron asks for and cannot do without."""


class Anything:
    """Answers every attribute, call, index and operator, holds every word, and yields nothing."""

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
        return iter(())

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
    __path__: Sequence[str] = ()

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
