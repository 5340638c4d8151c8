"""A command line as flags with their values, in order; later ones win, as argparse has it."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Argument:
    """One flag and the words after it."""

    flag: str
    values: tuple[str, ...] = ()

    def words(self) -> tuple[str, ...]:
        return (self.flag, *self.values)


@dataclass
class CommandLine:
    """Built front to back; what ranks higher is put in the place of what ranks lower, or added behind."""

    arguments: list[Argument] = field(default_factory=list)

    def add(self, flag: str, *values: object) -> None:
        self.arguments.append(Argument(flag, tuple(str(value) for value in values)))

    def add_unless_there(self, flag: str, *values: object) -> None:
        if not self.has(flag):
            self.add(flag, *values)

    def put(self, flag: str, *values: object) -> None:
        """In the place of the last argument of that flag, else behind all."""
        for index in reversed(range(len(self.arguments))):
            if self.arguments[index].flag == flag:
                self.arguments[index] = Argument(flag, tuple(str(value) for value in values))
                return
        self.add(flag, *values)

    def drop(self, flag: str) -> bool:
        """Takes every argument of that flag away; whether there was one."""
        before = len(self.arguments)
        self.arguments[:] = [argument for argument in self.arguments if argument.flag != flag]
        return len(self.arguments) < before

    def has(self, flag: str) -> bool:
        return any(argument.flag == flag for argument in self.arguments)

    def words(self) -> tuple[str, ...]:
        return tuple(word for argument in self.arguments for word in argument.words())


def is_flag(word: str) -> bool:
    """As argparse sees it: two dashes and a letter; `-1` and `--` are values."""
    return re.match(r"--[A-Za-z]", word) is not None


def arguments_of(words: Iterable[str]) -> Iterator[Argument]:
    """Groups words; `--flag=value` becomes flag and value. Words before the first flag come under an empty flag."""
    flag, values = "", list[str]()
    for word in words:
        if not is_flag(word):
            values.append(word)
            continue
        if flag or values:
            yield Argument(flag, tuple(values))
        flag, equals, value = word.partition("=")
        values = [value] if equals else []
    if flag or values:
        yield Argument(flag, tuple(values))


def effective(arguments: Iterable[Argument]) -> dict[str, str | bool | tuple[str, ...]]:
    """By name in snake_case: the last value, true for a bare flag, several as a tuple."""
    out: dict[str, str | bool | tuple[str, ...]] = {}
    for argument in arguments:
        values = argument.values
        out[name_of(argument.flag)] = True if not values else values[0] if len(values) == 1 else values
    return out


def name_of(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_")


def filled(template: Sequence[str], values: Mapping[str, object]) -> tuple[str, ...] | None:
    """`template` with each `{name}` replaced; a tuple gives several words; None where a value is None."""
    out: list[str] = []
    for word in template:
        name = word[1:-1] if word.startswith("{") and word.endswith("}") else None
        if name is None or name not in values:
            out.append(word)
        elif values[name] is None:
            return None
        elif isinstance(value := values[name], tuple):
            out += map(str, value)
        else:
            out.append(str(value))
    return tuple(out)
