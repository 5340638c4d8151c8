"""What all models share: camelCase on the wire, a field's docstring is its description, unknown fields are errors."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue
from pydantic.alias_generators import to_camel


class Model(BaseModel):
    """Base of every part of the resource."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
    )


FreeForm = Annotated[dict[str, JsonValue], Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})]
"""An object that we pass on without a schema of our own (pod overrides, tolerations)."""

Seconds = Annotated[int, Field(ge=1, le=604_800)]
"""At most a week: bounded so that sums of them fit the API server's cost budget for rules."""

Count = Annotated[int, Field(ge=1, le=1_000_000)]


def _rule(rule: str, message: str) -> dict[str, JsonValue]:
    return {"rule": rule, "message": message}


_NO_PARENTS = _rule(
    "!self.matches('(^|/)[.][.](/|$)')",
    "'..' would lead out of the volume: name the place below it, or an absolute path",
)
_NO_CONTROL = _rule(
    "!self.matches('[[:cntrl:]]')",
    "control characters (NUL, tab, line break) cannot be part of a path here: remove them",
)
WITHIN: dict[str, JsonValue] = {
    "x-kubernetes-validations": [
        _rule(
            "!self.startsWith('/') && !self.matches('(^|/)[.][.](/|$)')",
            "a relative path without '..' is needed, since it is looked for below the directory",
        ),
        _NO_CONTROL,
    ]
}
"""Of a path or pattern below a directory that another field names. The API server's alone: who reads the path judges it
anew, so that a job which was stored before the rule is not stopped by it."""

PLACE: dict[str, JsonValue] = {"x-kubernetes-validations": [_NO_PARENTS, _NO_CONTROL]}
"""Of a path that is absolute, or relative to a volume."""

Path = Annotated[str, Field(min_length=1, max_length=1024, json_schema_extra=PLACE)]
"""Absolute, or relative to the volume of its role."""

TEXT: dict[str, JsonValue] = {"pattern": r"^[^\x00-\x1f\x7f]*$"}
"""Of one line that reaches an argument, a variable or an annotation: a container cannot be made with a NUL in them.
The API server's alone, as the rules above."""

LINES: dict[str, JsonValue] = {"pattern": r"^[^\x00]*$"}
"""The same of text of several lines."""

Image = Annotated[str, Field(pattern=r"^[^\s\x00-\x1f\x7f]+$", max_length=1024)]
"""The API server refuses pods whose image begins or ends with a blank."""

ObjectName = Annotated[
    str, Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$", max_length=253)
]
"""As Kubernetes names most of its objects."""


def nested(model: type[Model]) -> Any:
    """A nested object that is filled with its own defaults when the user leaves it out."""
    return Field(default_factory=model, json_schema_extra={"default": {}})
