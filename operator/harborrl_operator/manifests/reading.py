"""YAML as kubectl reads it, where PyYAML reads it otherwise: `1e-6` is a number, dates are text, a key stands once."""

import json
import re
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any, override

import yaml

from harborrl_operator.manifests.fault import Fault

LARGEST = 1_572_864
"""Bytes of an object as JSON that etcd takes."""
MOST_NODES = 100_000
"""Of a document: more than fit into LARGEST with a name that is known."""


@dataclass(frozen=True)
class Document:
    number: int
    """From 1, within its file; empty documents count."""
    value: Any
    faults: tuple[Fault, ...] = ()
    node: yaml.Node | None = None
    """What `value` was made from: it knows its lines."""

    def line_of(self, path: str) -> int:
        """From 1, within the file: of the field, or of the nearest one around it that is written."""
        node, line = self.node, self.node.start_mark.line if self.node else 0
        for step in re.findall(r"[^.\[\]]+", path):
            if isinstance(node, yaml.MappingNode):
                found = next((pair for pair in node.value if pair[0].value == step), None)
                if found is None:
                    break
                line, node = found[0].start_mark.line, found[1]
            elif isinstance(node, yaml.SequenceNode) and step.isdecimal() and int(step) < len(node.value):
                node = node.value[int(step)]
                line = node.start_mark.line
            else:
                break
        return line + 1


class TooLargeError(Exception):
    """More than MOST_NODES."""


class Counting(yaml.SafeLoader):
    """PyYAML's own reading, which takes the last of equal keys, and remembers that there were several."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self.repeated: list[Fault] = []
        self.composed = 0

    @override
    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self.composed += 1
        if self.composed > MOST_NODES:
            raise TooLargeError
        return super().compose_node(parent, index)

    @override
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[object] = set()
        for key, _ in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else None
            if name is not None and name in seen and name != "<<":
                said = f"key {name!r} stands there twice; remove one"
                self.repeated.append(Fault("", said, key.start_mark.line + 1))
            seen.add(name)
        return super().construct_mapping(node, deep)


class _Loader(Counting):
    pass


_Loader.yaml_implicit_resolvers = {
    sign: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for sign, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9][0-9_]*(\.[0-9_]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def documents(text: str) -> Iterator[Document]:
    """Every document; what cannot be parsed ends the file with a fault."""
    number = 0
    try:
        loader = _Loader(text)
        while loader.check_node():
            number += 1
            yield _constructed(loader, number, loader.get_node())
    except TooLargeError:
        said = f"has more than {MOST_NODES} values, and the API server takes {LARGEST} bytes; make it smaller"
        yield Document(number, None, (Fault("", said),))
    except (yaml.YAMLError, RecursionError) as error:
        yield Document(max(number, 1), None, (_unreadable(error),))


def _constructed(loader: _Loader, number: int, node: Any) -> Document:
    loader.repeated, loader.composed = [], 0
    fault = None
    value = None
    try:
        if _unfolded(node, {}) > MOST_NODES:
            fault = Fault("", "its aliases unfold without end; write it without them")
        else:
            value = loader.construct_document(node)
            fault = _too_long(value)
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        fault = _unreadable(error)
    if fault is not None:
        return Document(number, None, (fault,), node)
    return Document(number, value, tuple(loader.repeated), node)


def _too_long(value: Any) -> Fault | None:
    size = len(json.dumps(value, default=str, skipkeys=True))
    if size <= LARGEST:
        return None
    return Fault("", f"is an object of {size} bytes, and the API server takes {LARGEST}; make it smaller")


def _unfolded(node: Any, known: dict[int, float]) -> float:
    """Nodes when each alias is what it stands for, as everybody reads it who walks through the document."""
    if id(node) not in known:
        known[id(node)] = float("inf")  # until its own parts are counted: one that holds itself stays so
        parts = [part for pair in node.value for part in pair] if isinstance(node, yaml.MappingNode) else node.value
        inner = parts if isinstance(node, yaml.CollectionNode) else ()
        known[id(node)] = 1 + sum(_unfolded(part, known) for part in inner)
    return known[id(node)]


def _unreadable(error: Exception) -> Fault:
    """Line and problem, never the text around it: it may hold what should have been a secret."""
    if isinstance(error, RecursionError):
        return Fault("", "is nested too deeply; correct the YAML")
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        said = " ".join((error.problem or "cannot be parsed").split())
        return Fault("", f"{said}; correct the YAML", error.problem_mark.line + 1)
    return Fault("", f"{' '.join(str(error).split())[:200]}; correct the YAML")
