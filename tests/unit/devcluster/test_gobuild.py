from pathlib import Path

import pytest
from devcluster.errors import BuildError, DownloadError, UnsuitableHostError
from devcluster.gobuild import OLDEST_GO, SOURCES, TESTS, Target, build_error, kube_ldflags, refuse_old_go, sources_key

TARGET = Target("etcd", "go.etcd.io/etcd/server/v3")


def sources(folder: Path) -> Path:
    (folder / "kube").mkdir(parents=True)
    (folder / "go.mod").write_text("module x\n")
    (folder / "go.sum").write_text("")
    (folder / "kube" / "main.go").write_text("package main\n")
    return folder


def test_equal_sources_and_tool_chain_have_one_key(tmp_path: Path) -> None:
    first, second = sources(tmp_path / "a"), sources(tmp_path / "b")
    assert sources_key(first, "go1.26") == sources_key(second, "go1.26")


def test_each_source_byte_and_the_tool_chain_change_the_key(tmp_path: Path) -> None:
    folder = sources(tmp_path / "a")
    keys = {sources_key(folder, "go1.26"), sources_key(folder, "go1.27")}
    for name in ("go.mod", "go.sum", "kube/main.go"):
        (folder / name).write_text(f"{(folder / name).read_text()}//\n")
        keys.add(sources_key(folder, "go1.26"))
    (folder / "kube" / "main.go").rename(folder / "kube" / "other.go")
    keys.add(sources_key(folder, "go1.26"))
    assert len(keys) == 6


def test_files_that_are_not_compiled_do_not_change_the_key(tmp_path: Path) -> None:
    folder = sources(tmp_path / "a")
    before = sources_key(folder, "go")
    (folder / "README.md").write_text("words")
    assert sources_key(folder, "go") == before


def test_a_failed_download_is_told_by_its_module() -> None:
    output = (
        'go: k8s.io/api@v0.35.4: Get "https://proxy.example/k8s.io/api/@v/v0.35.4.mod": dial tcp: no route to host\n'
    )
    error = build_error(TARGET, output)
    assert isinstance(error, DownloadError)
    assert "k8s.io/api@v0.35.4" in str(error)
    assert "no route to host" in str(error)


def test_a_module_that_is_not_served_is_told_by_its_name() -> None:
    output = "go: example.org/tool@v1.2.3: reading https://proxy.example/x.info: 403 Forbidden\n"
    assert isinstance(build_error(TARGET, output), DownloadError)


def test_a_compiler_error_is_a_build_error() -> None:
    error = build_error(TARGET, "# x/cri\ncri/main.go:36:88: cannot use true as *klog.Logger value\n")
    assert isinstance(error, BuildError)
    assert "main.go:36" in str(error)


def test_the_version_reaches_the_linker_whole_and_in_parts() -> None:
    words = kube_ldflags("v1.35.4").split()
    assert "k8s.io/component-base/version.gitVersion=v1.35.4" in words
    assert "k8s.io/component-base/version.gitMinor=35" in words


def test_the_build_for_tests_includes_helm_which_the_chart_tests_run() -> None:
    assert {target.name for target in TESTS} == {"kube", "etcd", "pki", "helm"}


def test_a_tool_chain_that_is_too_old_is_refused_by_its_version() -> None:
    with pytest.raises(UnsuitableHostError, match=r"/usr/bin/go is Go 1\.19, too old\. Install Go 1\.26"):
        refuse_old_go("go version go1.19.8 linux/amd64\n", "/usr/bin/go")


@pytest.mark.parametrize("version", ["go1.26.0", "go1.26rc1", "go1.30", "go2.0", "devel +abc"])
def test_a_tool_chain_that_is_new_enough_or_of_no_known_version_is_used(version: str) -> None:
    refuse_old_go(f"go version {version} linux/amd64\n", "/usr/bin/go")


def test_the_oldest_tool_chain_is_the_one_that_the_modules_demand() -> None:
    demand = next(line for line in (SOURCES / "go.mod").read_text().splitlines() if line.startswith("go "))
    assert tuple(map(int, demand.split()[1].split(".")[:2])) == OLDEST_GO
