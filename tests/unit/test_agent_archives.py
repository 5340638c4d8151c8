"""What comes out of a sandbox, however it was packed."""

import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from harborrl_agent_server.sandboxes.archives import SHOWN, BadArchiveError, unpack
from harborrl_agent_server.sandboxes.streams import TransferTooLargeError
from support.small_volume import small_volume

GOOD = "good"


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


def archive_of(*members: tarfile.TarInfo, content: bytes = b"x" * 2000) -> io.BytesIO:
    """Regular files have the content; the last member is a harmless file."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for info in (*members, member(GOOD)):
            info.size = len(content) if info.isreg() else 0
            tar.addfile(info, io.BytesIO(content) if info.isreg() else None)
    archive.seek(0)
    return archive


def test_a_flood_of_empty_files_is_cut_off(tmp_path: Path) -> None:
    archive = archive_of(*(member(f"empty-{number}") for number in range(12)), content=b"")
    with pytest.raises(TransferTooLargeError):
        unpack(archive, tmp_path, limit=1024, members=10)
    assert len(list(tmp_path.iterdir())) == 10


def test_more_bytes_than_the_limit_are_cut_off_before_they_are_written(tmp_path: Path) -> None:
    with pytest.raises(TransferTooLargeError):
        unpack(archive_of(), tmp_path, limit=1999)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("header", [{"format": tarfile.GNU_FORMAT}, {"format": tarfile.PAX_FORMAT}])
def test_a_name_that_would_fill_the_memory_is_not_read(tmp_path: Path, header: dict[str, int]) -> None:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", **header) as tar:  # type: ignore[call-overload] # either format
        tar.addfile(member("x" * 100_000))
    archive.seek(0)
    with pytest.raises(BadArchiveError, match="65536 bytes"):
        unpack(archive, tmp_path, limit=10**9)


def test_a_map_of_holes_that_would_fill_the_memory_is_not_read(tmp_path: Path) -> None:
    holes = b"1000000\n" + b"0\n" * 100_000
    info = member("sparse")
    info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "1"}
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.PAX_FORMAT) as tar:
        info.size = len(holes)
        tar.addfile(info, io.BytesIO(holes))
    archive.seek(0)
    with pytest.raises(BadArchiveError, match="65536 bytes"):
        unpack(archive, tmp_path, limit=10**9)


def test_many_files_of_long_names_are_no_long_name(tmp_path: Path) -> None:
    names = [f"{'folder/' * 30}{number}" for number in range(70)]
    assert unpack(archive_of(*map(member, names), content=b"x" * 20_000), tmp_path, limit=10**9) == []
    assert {path.stat().st_size for path in tmp_path.rglob("[0-9]*")} == {20_000}


def test_a_refused_name_is_told_in_short(tmp_path: Path) -> None:
    assert unpack(archive_of(member("long" * 2000)), tmp_path, limit=10**9) == [("long" * 25)]


@pytest.mark.parametrize(
    "hostile",
    [
        member("../escaped"),
        member("a/../../escaped"),
        member("pipe", tarfile.FIFOTYPE),
        member("disk", tarfile.BLKTYPE),
        member("terminal", tarfile.CHRTYPE),
        member("link", tarfile.SYMTYPE, "/etc/passwd"),
        member("link", tarfile.SYMTYPE, "../../etc/passwd"),
        member("hard", tarfile.LNKTYPE, "/etc/passwd"),
        member("hard", tarfile.LNKTYPE, "../outside"),
        member("deep/" * 101 + "file"),
    ],
    ids=lambda info: f"{info.name[:20]} {info.type!r} {info.linkname}",
)
def test_a_hostile_member_costs_only_itself(tmp_path: Path, hostile: tarfile.TarInfo) -> None:
    (tmp_path / "outside").write_text("ours")
    target = tmp_path / "target"
    assert unpack(archive_of(hostile), target, limit=10_000) == [hostile.name[:100]]
    assert [path.name for path in target.rglob("*") if path.is_file()] == [GOOD]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["outside", "target"]


def test_what_a_full_volume_refuses_is_no_unsafe_name(tmp_path: Path) -> None:
    with small_volume(tmp_path / "volume", 1) as volume, pytest.raises(OSError, match="No space left"):
        unpack(archive_of(member("reward.txt"), content=b"x" * 2**21), volume, limit=2**30)


def test_a_name_that_no_file_can_have_costs_only_itself(tmp_path: Path) -> None:
    assert unpack(archive_of(member("n" * 300)), tmp_path, limit=2**20) == ["n" * SHOWN]
    assert (tmp_path / GOOD).exists()


def test_an_absolute_name_lands_inside(tmp_path: Path) -> None:
    assert unpack(archive_of(member("/tmp/absolute-4711")), tmp_path, limit=10_000) == []  # noqa: S108 - of the archive
    assert (tmp_path / "tmp" / "absolute-4711").is_file()


def test_nothing_is_written_through_a_link_that_an_earlier_member_made(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("ours")
    target = tmp_path / "target"
    target.mkdir()
    (target / "a").symlink_to(outside)
    unpack(archive_of(member("a")), target, limit=10_000)
    assert outside.read_text() == "ours"


@pytest.mark.parametrize(
    "cut",
    [
        pytest.param(lambda whole: whole[:100], id="within the first header"),
        pytest.param(lambda whole: whole[:1000], id="within a member's content"),
        pytest.param(lambda whole: whole[: 512 + 2048], id="between two members"),
        pytest.param(lambda whole: whole[: 512 + 2048 + 300], id="within the second header"),
        pytest.param(lambda whole: whole[: 2 * (512 + 2048)], id="before the marks of its end"),
        pytest.param(lambda _: b"", id="before it began"),
        pytest.param(lambda _: b"tar: command not found\n" * 100, id="no archive"),
    ],
)
def test_half_an_archive_is_never_taken_for_a_whole_one(tmp_path: Path, cut: Callable[[bytes], bytes]) -> None:
    whole = archive_of(member("first")).getvalue()
    with pytest.raises(BadArchiveError):
        unpack(io.BytesIO(cut(whole)), tmp_path, limit=10_000)


def test_a_whole_archive_without_the_padding_of_a_tape_is_whole(tmp_path: Path) -> None:
    whole = archive_of(member("first")).getvalue()
    assert unpack(io.BytesIO(whole[: 2 * (512 + 2048) + 1024]), tmp_path, limit=10_000) == []
