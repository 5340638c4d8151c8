"""Specs near good ones: a few fields hold something else the schema allows, or something that it does not."""

from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from harborrl_operator.crd import custom_resource_definition
from support import hrl
from support.specs import values_of

Path = tuple[str, ...]

BASES = (hrl.QUICKSTART_SPEC, hrl.MINIMAL_SPEC, hrl.DESIGN_SPEC)

JUNK: list[Any] = [
    *(
        None,
        True,
        False,
        0,
        -1,
        1,
        2**31,
        2**63,
        -(2**63),
        0.5,
        1e308,
        "",
        " ",
        "0",
        "-1",
        "x" * 70,
        "\x00",
        "../..",
        "é",
    ),
    *("{}", "${X}", "{task", "a b", "A", "--save", "'", "1e9", [], [None], [[]], [{}], {}, {"": ""}, {"a": None}),
    *({"a": {"b": {"c": [1, "2", None]}}}, ["x"] * 200, {str(n): n for n in range(40)}, "x" * 70_000),
]
"""What people and programs write by mistake."""


def fields() -> list[tuple[Path, dict[str, Any]]]:
    """Every field of the spec with its schema, objects too; lists count as one field."""
    schema = custom_resource_definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return list(_below(schema["properties"]["spec"], ()))


def _below(schema: dict[str, Any], path: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    for name, child in (schema.get("properties") or {}).items():
        yield (*path, name), child
        yield from _below(child, (*path, name))


FIELDS = fields()

VALUES = {path: values_of(schema, path[-1]) for path, schema in FIELDS}
"""What the schema lets into each; made once, for that takes longer than to draw."""


FREE_FORM = frozenset(
    path
    for path, schema in FIELDS
    if "x-kubernetes-preserve-unknown-fields" in str(schema) or path[-1] in ("resources", "requests", "limits")
)
"""Fields whose contents go into pods as they are: what they hold is Kubernetes' to judge, when it is applied."""


@st.composite
def mutants(draw: st.DrawFn, *, junk: bool = True, but: frozenset[Path] = frozenset()) -> dict[str, Any]:
    """A good spec with one to four fields changed; without `junk` only to what the schema allows."""
    paths = [path for path in VALUES if path not in but]
    changes: dict[str, Any] = {}
    for _ in range(draw(st.integers(1, 4))):
        path = draw(st.sampled_from(paths))
        wild = junk and draw(st.booleans())
        value = draw(st.sampled_from(JUNK)) if wild else draw(VALUES[path])
        changes[".".join(path)] = value
    base: dict[str, Any] = draw(st.sampled_from(BASES))
    try:
        return hrl.merged(base, changes)
    except (TypeError, AttributeError):
        return base  # one change has replaced what another one is in
