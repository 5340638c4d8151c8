"""What an image build takes from the machine it runs on, and when it decides that nothing has changed."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from images import host, targets
from images.engines import detect
from images.process import BuildError
from images.targets import BY_NAME, Target

ROOT = Path(__file__).resolve().parents[2]


def test_variables_win_over_pips_files_and_reach_uv_under_its_own_names(tmp_path: Path) -> None:
    weak, strong = tmp_path / "weak.conf", tmp_path / "strong.conf"
    weak.write_text(
        "[global]\nindex-url = https://weak.example/simple\nextra-index-url =\n    https://a.example\n    https://b.example\n"
    )
    strong.write_text("[global]\nindex-url = https://strong.example/simple\n")
    settings = host.registries(
        {"PIP_TRUSTED_HOST": "mirror.example", "SECRET_TOKEN": "x", "https_proxy": "http://p:1"}, [weak, strong]
    )
    assert settings == {
        "PIP_INDEX_URL": "https://strong.example/simple",
        "UV_DEFAULT_INDEX": "https://strong.example/simple",
        "PIP_EXTRA_INDEX_URL": "https://a.example https://b.example",
        "UV_INDEX": "https://a.example https://b.example",
        "PIP_TRUSTED_HOST": "mirror.example",
        "UV_INSECURE_HOST": "mirror.example",
        "https_proxy": "http://p:1",
    }


def test_uvs_own_variable_wins_over_what_pip_says() -> None:
    settings = host.registries({"PIP_INDEX_URL": "https://pip.example", "UV_DEFAULT_INDEX": "https://uv.example"}, [])
    assert settings["UV_DEFAULT_INDEX"] == "https://uv.example"


def test_a_machine_without_settings_passes_nothing(tmp_path: Path) -> None:
    assert host.registries({"PATH": "/bin", "HOME": "/root"}, [tmp_path / "absent.conf"]) == {}


def test_settings_survive_the_shell_that_sources_them() -> None:
    assert host.shell_settings({"UV_INDEX": "https://u:p@h/$x 'y'"}) == "UV_INDEX='https://u:p@h/$x '\"'\"'y'\"'\"''\n"


def test_the_bundle_that_the_machine_names_wins_over_the_systems(tmp_path: Path) -> None:
    named, system = tmp_path / "named.pem", tmp_path / "system.pem"
    named.touch()
    system.touch()
    assert host.ca_bundle({"SSL_CERT_FILE": str(named)}, [str(system)]) == named
    assert host.ca_bundle({"SSL_CERT_FILE": str(tmp_path / "gone.pem")}, [str(system)]) == system
    assert host.ca_bundle({}, [str(tmp_path / "gone.pem")]) is None


@pytest.mark.parametrize(
    ("sources", "mirror"),
    [
        ("deb http://m.example/debian bookworm main", "http://m.example/debian"),
        ("deb [signed-by=/k.gpg] https://m.example/debian/ bookworm main", "https://m.example/debian"),
        (
            "Types: deb\n# URIs: http://old.example/debian\nURIs: http://m.example/debian\nSuites: bookworm",
            "http://m.example/debian",
        ),
        ("URIs: http://m.example/debian-security\nURIs: http://m.example/debian", "http://m.example/debian"),
        ("deb cdrom:[Debian] bookworm main", None),
        ("", None),
    ],
)
def test_the_debian_mirror_is_the_one_that_apt_uses(sources: str, mirror: str | None) -> None:
    assert host.debian_mirror(sources) == mirror


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for source in {*targets.BUILD, *(source for target in targets.TARGETS for source in target.sources)}:
        (tmp_path / source).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, tmp_path / source, dirs_exist_ok=True)
        else:
            shutil.copy2(ROOT / source, tmp_path / source)
    return tmp_path


def prints(tree: Path) -> dict[str, str]:
    return {name: targets.fingerprint(tree, target, "base") for name, target in BY_NAME.items() if name != "base"}


def test_code_of_one_part_makes_only_its_own_image_stale(tree: Path) -> None:
    before = prints(tree)
    (tree / "operator/harborrl_operator/new.py").write_text("x = 1\n")
    after = prints(tree)
    assert {name for name in before if before[name] != after[name]} == {"operator"}


def test_the_dockerfile_and_the_base_make_every_image_stale(tree: Path) -> None:
    before = prints(tree)
    assert all(targets.fingerprint(tree, BY_NAME[name], "another base") != before[name] for name in before)
    with (tree / "Dockerfile").open("a") as file:
        file.write("# a change\n")
    assert all(prints(tree)[name] != before[name] for name in before)


def test_a_file_that_no_image_copies_makes_nothing_stale(tree: Path) -> None:
    before = prints(tree)
    (tree / "operator/harborrl_operator/__pycache__").mkdir(exist_ok=True)
    (tree / "operator/harborrl_operator/__pycache__/x.pyc").write_bytes(b"x")
    (tree / "notes.md").write_text("x")
    assert prints(tree) == before


def test_an_executable_bit_is_part_of_the_content(tree: Path) -> None:
    before = prints(tree)
    (tree / "examples/quickstart/tasks/write-word/tests/test.sh").chmod(0o644)
    assert prints(tree)["quickstart"] != before["quickstart"]


@pytest.mark.parametrize(
    "target", [target for target in targets.TARGETS if target.name != "base"], ids=lambda target: target.name
)
def test_every_path_that_a_target_is_made_from_exists_and_is_in_the_dockerfile(target: Target) -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    for source in target.sources:
        assert (ROOT / source).exists()
        assert source in dockerfile


def programs(*present: str) -> Callable[[Sequence[str]], str | None]:
    return lambda argv: "there" if argv[0] in present else None


@pytest.mark.parametrize(
    ("cluster", "present", "engine"),
    [
        ("own", ("docker", "buildah"), "buildah"),
        ("kind", ("docker", "buildah"), "docker"),
        ("context:prod", ("docker", "buildah"), "docker"),
        (None, ("docker", "buildah"), "docker"),
        (None, ("buildah",), "buildah"),
    ],
)
def test_images_are_built_where_the_cluster_reads_them(cluster: str | None, present: list[str], engine: str) -> None:
    """A build into the other storage takes a quarter of an hour and then cannot be loaded."""
    assert detect(0, cluster, programs(*present)).name == engine


@pytest.mark.parametrize(
    ("cluster", "present", "user", "wanted"),
    [
        ("own", ["docker"], 0, "install buildah"),
        ("kind", ["buildah"], 0, "start Docker"),
        ("own", ["buildah"], 1, "root"),
    ],
)
def test_a_missing_engine_is_told_with_what_to_do(cluster: str, present: list[str], user: int, wanted: str) -> None:
    with pytest.raises(BuildError, match=wanted):
        detect(user, cluster, programs(*present))
