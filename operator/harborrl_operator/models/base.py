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

Path = Annotated[str, Field(min_length=1, max_length=1024)]

Image = Annotated[str, Field(pattern=r"^\S+$", max_length=1024)]
"""The API server refuses pods whose image begins or ends with a blank."""

ObjectName = Annotated[
    str, Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$", max_length=253)
]
"""As Kubernetes names most of its objects."""


def nested(model: type[Model]) -> Any:
    """A nested object that is filled with its own defaults when the user leaves it out."""
    return Field(default_factory=model, json_schema_extra={"default": {}})
