"""`python -m harborrl_trainer.config.generate FILE`: writes the operator's model of `spec.trainer.config`.

The parts share data, not modules; this text is the data (docs/decisions/0080). A test compares the two.
"""

import ast
import dataclasses
import inspect
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin

from harborrl_trainer.config import harbor, miles
from harborrl_trainer.config.about import About
from harborrl_trainer.config.harbor import HarborFrameworkConfig
from harborrl_trainer.config.miles import about

WIDTH = 120

_HEAD = '''"""`trainer.config`: the fields of HarborFrameworkConfig, with its documented defaults.

Generated from the trainer's class by `python -m harborrl_trainer.config.generate FILE`; do not edit.
The CRD carries no defaults for them: a preset ranks below what is set explicitly, and a default that the API server
fills in could not be told from one that the user wrote.
"""

from typing import Annotated, Any

from pydantic import ConfigDict, Field

from harborrl_operator.models.base import TEXT, Count, FreeForm, Model

Rate = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Decay = Annotated[float, Field(ge=0, lt=1)]
Word = Annotated[str, Field(min_length=1, max_length=1024, json_schema_extra=TEXT)]


def _describe_defaults(schema: dict[str, Any]) -> None:
    for field in schema["properties"].values():
        default = field.pop("default", None)
        if default not in (None, {}):
            field["description"] += f" Documented default: {str(default).lower() if default is True else default}."


class FrameworkConfig(Model):
    """Training hyper-parameters; unset fields take the preset's value, else the documented default."""

    model_config = ConfigDict(json_schema_extra=_describe_defaults)

'''

_NAMED = {
    "ge=0": "Rate",
    "gt=0": "Positive",
    "ge=0, le=1": "Share",
    "ge=0, lt=1": "Decay",
    "ge=1, le=1_000_000": "Count",
}


def framework_module() -> str:
    """Source of the module, formatted as the tree is."""
    docs = descriptions()
    fields = (field for field in dataclasses.fields(HarborFrameworkConfig) if not about(field).home)
    return _HEAD + "".join(line for field in fields for line in _field(field, docs[field.name]))


def descriptions() -> dict[str, str]:
    """The string under each field of both classes; a field that the subclass defines again takes its own."""
    out: dict[str, str] = {}
    for module in (miles, harbor):
        for node in ast.parse(inspect.getsource(module)).body:
            if isinstance(node, ast.ClassDef):
                out |= dict(_documented(node))
    return out


def _documented(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, text in zip(node.body, node.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
        ):
            yield field.target.id, " ".join(str(text.value.value).split())


def _field(field: dataclasses.Field[Any], description: str) -> Iterator[str]:
    yield f"    {field.name}: {_type(field)} = {_default(field)}\n"
    wrapped = textwrap.wrap(f'"""{description}', WIDTH - 4)
    if len(wrapped[-1]) + 3 > WIDTH - 4:
        wrapped.append("")
    yield textwrap.indent("\n".join(wrapped) + '"""', "    ") + "\n"


def _type(field: dataclasses.Field[Any]) -> str:
    kind = get_args(field.type)[0]
    if isinstance(kind, UnionType):
        return f"{_named(get_args(kind)[0], _bounds(about(field)))} | None"
    return _named(kind, _bounds(about(field)))


def _named(kind: Any, bounds: str) -> str:
    if kind is str:
        return "Word"
    if get_origin(kind) is dict:
        return "FreeForm"
    if bounds in _NAMED and (kind is float or _NAMED[bounds] == "Count"):
        return _NAMED[bounds]
    return f"Annotated[{kind.__name__}, Field({bounds})]" if bounds else str(kind.__name__)


def _bounds(known: About) -> str:
    limits = {"ge": known.least, "gt": known.above, "le": known.most, "lt": known.below}
    return ", ".join(f"{name}={value:_}" for name, value in limits.items() if value is not None)


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default_factory is not dataclasses.MISSING:
        return "Field(default_factory=dict)"
    if isinstance(field.default, str):
        return f'"{field.default}"'
    return "1e-6" if field.default == 1e-6 else repr(field.default)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(framework_module())
