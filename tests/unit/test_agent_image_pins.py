"""One content for one image name while a server lives."""

import logging
from pathlib import Path
from typing import Any

import pytest

from harborrl_agent_server.errors import SandboxStartError
from harborrl_agent_server.sandboxes.pins import ImagePins, pullable
from harborrl_agent_server.sandboxes.references import untagged
from support.sandbox_api import SandboxApi, provided, sandbox_of

OLD, NEW = (f"sha256:{letter * 64}" for letter in "ab")
IMAGE = "registry.example:5000/tasks/a:latest"


def pod(image_id: str, image: str = IMAGE) -> dict[str, Any]:
    helper = {"name": "helper", "imageID": f"registry.example/other@{NEW}"}
    return {
        "spec": {"containers": [{"name": "main", "image": image}]},
        "status": {"containerStatuses": [helper, {"name": "main", "imageID": image_id}]},
    }


def test_what_the_first_sandbox_ran_is_what_the_next_ones_are_asked_to_run() -> None:
    pins = ImagePins()
    assert pins.pinned(IMAGE) == IMAGE
    pins.ran(IMAGE, pod(f"registry.example:5000/tasks/a@{OLD}"))
    assert pins.pinned(IMAGE) == f"registry.example:5000/tasks/a@{OLD}"
    assert pins.pinned("registry.example:5000/tasks/a:v2") == "registry.example:5000/tasks/a:v2"


def test_of_two_that_began_at_once_on_both_sides_of_a_move_the_second_is_no_sandbox() -> None:
    pins = ImagePins()
    pins.ran(IMAGE, pod(f"registry.example:5000/tasks/a@{OLD}"))
    with pytest.raises(SandboxStartError, match="ImageMoved") as caught:
        pins.ran(IMAGE, pod(f"registry.example:5000/tasks/a@{NEW}"))
    assert caught.value.reason == "ImageMoved"
    pins.ran(IMAGE, pod("whatever the runtime says", image=pins.pinned(IMAGE)))
    assert OLD in pins.pinned(IMAGE)


def test_an_image_that_was_loaded_into_the_node_keeps_its_tag_and_that_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pins = ImagePins()
    caplog.set_level(logging.WARNING)
    for _ in range(3):
        pins.ran("localhost/a:dev", pod(OLD, "localhost/a:dev"))
    assert pins.pinned("localhost/a:dev") == "localhost/a:dev"
    assert len(caplog.records) == 1
    assert "by digest" in caplog.text


def test_where_somebody_else_decides_which_image_runs_nothing_is_pinned() -> None:
    pins = ImagePins(enabled=False)
    for digest in (OLD, NEW):
        pins.ran(IMAGE, pod(f"registry.example:5000/tasks/a@{digest}"))
    assert pins.pinned(IMAGE) == IMAGE


def test_a_reference_by_digest_is_left_alone() -> None:
    pins = ImagePins()
    image = f"registry.example/a@{NEW}"
    pins.ran(image, pod(f"registry.example/a@{OLD}", image))
    assert pins.pinned(image) == image


@pytest.mark.parametrize(
    ("image", "image_id", "digest"),
    [
        ("python:3", f"docker.io/library/python@{OLD}", OLD),
        ("python:3", f"docker-pullable://python@{OLD}", OLD),
        ("registry.example/a", f"registry.example/a@{OLD}", OLD),
        ("registry.example/a:1", f"mirror.example/a@{OLD}", None),
        ("registry.example/a:1", f"registry.example/b@{OLD}", None),
        ("registry.example/a:1", OLD, None),
        ("registry.example/a:1", f"docker://{OLD}", None),
        ("registry.example/a:1", "", None),
    ],
)
def test_only_a_digest_of_the_same_repository_can_be_pulled(image: str, image_id: str, digest: str | None) -> None:
    assert pullable(image, image_id) == digest


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("a", "a"),
        ("a:1", "a"),
        ("r.example:5000/a", "r.example:5000/a"),
        ("r.example:5000/b/a:1", "r.example:5000/b/a"),
        (f"r.example/a:1@{OLD}", "r.example/a"),
    ],
)
def test_a_tag_is_taken_off_and_a_port_is_not(text: str, name: str) -> None:
    assert untagged(text) == name


async def test_a_later_sandbox_asks_for_the_digest_that_the_first_one_ran(tmp_path: Path) -> None:
    api = SandboxApi()
    api.status = lambda made: {
        "phase": "Running",
        "containerStatuses": [
            {"name": "main", "state": {"running": {}}, "imageID": f"registry.example/task@{OLD}"}
            for _ in made["spec"]["containers"]
        ],
    }
    asked = []
    async with provided(api, tmp_path, sandbox_image="registry.example/task:latest") as provider:
        for number in range(2):
            sandbox = sandbox_of(provider, tmp_path / str(number))
            await sandbox.start(force_build=False)
            asked += [one["spec"]["containers"][0]["image"] for one in api.of("pods")]
            await sandbox.stop(delete=True)
    assert asked == ["registry.example/task:latest", f"registry.example/task@{OLD}"]
