import hashlib
import io
import json
import os
import tarfile
from pathlib import Path

import httpx
import pytest
from devcluster.loading import buildah_environment, full_name
from devcluster.ocilayout import Layout, program_layer
from devcluster.registry import Shelf, serve

NAME = "localhost/harborrl/tool:dev"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program"
    path.write_bytes(os.urandom(1 << 20))
    return path


@pytest.fixture
def layout(tmp_path: Path, program: Path) -> Layout:
    layout = Layout(tmp_path / "layout")
    layout.root.mkdir()
    layout.add_program_image(NAME, {"bin/tool": program}, ["/bin/tool"], {"bin/alias": "tool"})
    return layout


def used(path: Path) -> int:
    return path.stat().st_blocks * 512


def test_a_layer_holds_the_program_its_folder_and_its_links(program: Path) -> None:
    content = program_layer({"bin/tool": program}, {"bin/alias": "tool"})
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        assert archive.getnames() == ["bin", "tmp", "bin/tool", "bin/alias"]
        assert archive.getmember("bin/tool").mode == 0o755
        assert archive.getmember("bin/alias").linkname == "tool"


def test_equal_programs_make_equal_images(tmp_path: Path, layout: Layout, program: Path) -> None:
    other = Layout(tmp_path / "other")
    other.root.mkdir()
    os.utime(program, (0, 0))
    other.add_program_image(NAME, {"bin/tool": program}, ["/bin/tool"], {"bin/alias": "tool"})
    assert other.manifest_digest(NAME) == layout.manifest_digest(NAME)


def test_writing_a_name_again_replaces_it(layout: Layout, program: Path) -> None:
    before = layout.manifest_digest(NAME)
    program.write_bytes(b"new")
    layout.add_program_image(NAME, {"bin/tool": program}, ["/bin/tool"])
    assert layout.manifest_digest(NAME) not in {before, None}
    assert len(layout.index()["manifests"]) == 1


def test_a_hollow_layer_keeps_its_length_and_takes_no_disk(layout: Layout) -> None:
    (digest,) = layout.layers(NAME)
    size = layout.blob(digest).stat().st_size
    assert used(layout.blob(digest)) >= size
    layout.hollow([digest])
    assert layout.blob(digest).stat().st_size == size
    assert used(layout.blob(digest)) == 0
    assert layout.is_hollow(digest)


def test_a_hollow_layer_that_is_written_again_is_whole(layout: Layout, program: Path) -> None:
    (digest,) = layout.layers(NAME)
    layout.hollow([digest])
    layout.add_program_image(NAME, {"bin/tool": program}, ["/bin/tool"], {"bin/alias": "tool"})
    assert not layout.is_hollow(digest)
    assert f"sha256:{hashlib.sha256(layout.blob(digest).read_bytes()).hexdigest()}" == digest


def test_a_mark_without_a_hole_still_counts_as_hollow(layout: Layout) -> None:
    """What a kill between mark and truncation leaves: the blob is exported again rather than served torn."""
    (digest,) = layout.layers(NAME)
    mark = layout.root / "hollow" / digest.removeprefix("sha256:")
    mark.parent.mkdir()
    mark.touch()
    assert layout.is_hollow(digest)


def test_dropping_removes_blob_and_mark(layout: Layout) -> None:
    (digest,) = layout.layers(NAME)
    layout.hollow([digest])
    layout.drop([digest])
    assert not layout.blob(digest).exists()
    assert not layout.is_hollow(digest)


def test_garbage_is_what_no_name_leads_to(layout: Layout) -> None:
    stray = layout.add_blob(b"layer of a replaced build")
    kept = layout.layers(NAME)
    layout.collect_garbage()
    assert not layout.blob(stray).exists()
    assert [digest for digest in kept if not layout.blob(digest).exists()] == []
    assert layout.manifest_digest(NAME) is not None


def test_an_image_that_lost_its_name_to_a_newer_build_is_garbage(layout: Layout) -> None:
    (layer,) = layout.layers(NAME)
    index = layout.index()
    del index["manifests"][0]["annotations"]
    (layout.root / "index.json").write_text(json.dumps(index))
    layout.collect_garbage()
    assert layout.index()["manifests"] == []
    assert not layout.blob(layer).exists()


def test_the_registry_serves_manifest_and_blobs_by_tag_and_digest(layout: Layout) -> None:
    (layer,) = layout.layers(NAME)
    with serve(layout, 0) as (_, port), httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
        assert client.get("/v2/").status_code == httpx.codes.OK
        tagged = client.get("/v2/harborrl/tool/manifests/dev?ns=localhost")
        assert tagged.headers["Docker-Content-Digest"] == layout.manifest_digest(NAME)
        by_digest = client.get(f"/v2/harborrl/tool/manifests/{layout.manifest_digest(NAME)}")
        assert json.loads(by_digest.content) == json.loads(tagged.content)
        head = client.head(f"/v2/harborrl/tool/blobs/{layer}")
        assert int(head.headers["Content-Length"]) == layout.blob(layer).stat().st_size
        assert client.get(f"/v2/harborrl/tool/blobs/{layer}").content == layout.blob(layer).read_bytes()


def test_the_registry_refuses_a_hollow_blob_and_remembers_it(layout: Layout) -> None:
    (layer,) = layout.layers(NAME)
    layout.hollow([layer])
    with serve(layout, 0) as (shelf, port):
        answer = httpx.get(f"http://127.0.0.1:{port}/v2/harborrl/tool/blobs/{layer}", trust_env=False)
        assert answer.status_code == httpx.codes.NOT_FOUND
        assert shelf.missed == {layer}


@pytest.mark.parametrize(
    "target",
    [
        "/v2/harborrl/tool/blobs/../../../../etc/passwd",
        "/v2/harborrl/tool/blobs/sha256:../../index.json",
        "/v2/harborrl/tool/manifests/absent",
        "/v2/other/manifests/dev",
        "/etc/passwd",
    ],
)
def test_the_registry_serves_nothing_else(layout: Layout, target: str) -> None:
    assert Shelf(layout).find(target) is None


@pytest.mark.parametrize(
    ("given", "full"),
    [
        ("localhost/harborrl/trainer:dev", "localhost/harborrl/trainer:dev"),
        ("localhost/harborrl/trainer", "localhost/harborrl/trainer:latest"),
        ("harborrl/trainer:dev", "localhost/harborrl/trainer:dev"),
        ("trainer", "localhost/trainer:latest"),
        ("registry.example:5000/a/b", "registry.example:5000/a/b:latest"),
    ],
)
def test_names_are_completed_as_buildah_completes_them(given: str, full: str) -> None:
    assert full_name(given) == full


def test_the_users_storage_driver_wins() -> None:
    environment = buildah_environment({"STORAGE_DRIVER": "vfs", "PATH": "/bin"})
    assert environment["STORAGE_DRIVER"] == "vfs"
    assert environment["BUILDAH_ISOLATION"] == "chroot"


@pytest.mark.parametrize(("overlay", "driver"), [(True, "overlay"), (False, "vfs")])
def test_images_are_loaded_from_where_buildah_can_build_them(overlay: bool, driver: str) -> None:
    assert buildah_environment({}, lambda: overlay)["STORAGE_DRIVER"] == driver
