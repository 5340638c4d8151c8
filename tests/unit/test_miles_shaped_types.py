"""The stand-in's data classes, which the double of Miles' generate uses as well, are Miles' own as far as they go."""

import ast
from collections.abc import Iterator
from dataclasses import fields

import pytest
from miles.rollout.base_types import GenerateFnInput, GenerateFnOutput
from miles.utils.types import Sample

from support.miles_upstream import miles_file

PLACES = {
    Sample: "miles/utils/types.py",
    GenerateFnInput: "miles/rollout/base_types.py",
    GenerateFnOutput: "miles/rollout/base_types.py",
}


def class_of(body: list[ast.stmt], name: str) -> ast.ClassDef:
    return next(node for node in body if isinstance(node, ast.ClassDef) and node.name == name)


def assigned(body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))


@pytest.mark.parametrize("ours", PLACES, ids=lambda one: one.__name__)
def test_each_field_is_one_of_miles(ours: type) -> None:
    theirs = class_of(ast.parse(miles_file(PLACES[ours])).body, ours.__name__)
    assert {field.name for field in fields(ours)} <= set(assigned(theirs.body))


def test_the_statuses_are_miles() -> None:
    sample = class_of(ast.parse(miles_file(PLACES[Sample])).body, "Sample")
    assert {status.name for status in Sample.Status} == set(assigned(class_of(sample.body, "Status").body))
