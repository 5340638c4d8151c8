"""`kubectl explain hrl.spec --recursive` reads as documentation: the server publishes a text for every field."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from support.control_plane import admin_client

pytestmark = pytest.mark.api

API = "/openapi/v3/apis/harborrl.dev/v1alpha1"


def fields(schema: dict[str, Any], path: str) -> Iterator[tuple[str, str]]:
    """Every named field with its description, through lists."""
    for name, child in (schema.get("properties") or {}).items():
        yield f"{path}.{name}", child.get("description", "")
        yield from fields(child, f"{path}.{name}")
    if isinstance(schema.get("items"), dict):
        yield from fields(schema["items"], f"{path}[]")


PUBLISHED_WITHIN_SECONDS = 60.0


def explained(kubectl: Any, what: str, *options: str) -> str:
    """The server publishes a schema a moment after its CRD is established."""
    deadline = time.monotonic() + PUBLISHED_WITHIN_SECONDS
    while (done := kubectl("explain", what, *options)).returncode != 0 and time.monotonic() < deadline:
        time.sleep(0.2)
    assert done.returncode == 0, done.stderr
    said: str = done.stdout
    return " ".join(said.split())


def published(kubectl: Any) -> dict[str, Any]:
    """The resource's schema as the server publishes it."""
    explained(kubectl, "hrl.spec", "--recursive")
    with admin_client(kubectl.plane) as client:
        schemas = client.get(API).raise_for_status().json()["components"]["schemas"]
    found: dict[str, Any] = next(schema for name, schema in schemas.items() if name.endswith("HarborRLJob"))
    properties: dict[str, Any] = found["properties"]
    return properties


@pytest.mark.parametrize("part", ["spec", "status"])
def test_every_field_that_the_server_publishes_has_a_sentence(kubectl: Any, part: str) -> None:
    described = dict(fields(published(kubectl)[part], part))
    assert len(described) > 40
    assert [path for path, said in described.items() if len(said) < 4] == []


def test_a_field_explains_its_unit_its_default_and_what_follows(kubectl: Any) -> None:
    said = explained(kubectl, "hrl.spec.agentServer.environmentStartSeconds")
    for part in ("Hard cap on starting the sandbox, s.", "Default 600", "the trial is lost"):
        assert part in said
    assert "cannot change" in explained(kubectl, "hrl")
