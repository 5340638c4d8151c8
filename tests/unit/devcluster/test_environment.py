import subprocess
import sys
from pathlib import Path

import pytest
from devcluster.environment import completed, exports
from devcluster.settings import Network, Settings

ROOT = Path(__file__).resolve().parents[3]
SETTINGS = Settings(state=Path("/var/lib/dev cluster"), cache=Path("/c"))


def test_administrators_programs_are_found_after_a_plain_su() -> None:
    assert completed({"PATH": "/usr/bin:/bin"})["PATH"] == "/usr/bin:/bin:/usr/sbin:/sbin"


def test_what_is_there_stays_first_and_is_not_repeated() -> None:
    once = completed(
        {"PATH": "/usr/sbin:/mine", "HTTPS_PROXY": "http://proxy.example:3128", "NO_PROXY": "intra.example"}
    )
    assert once["PATH"] == "/usr/sbin:/mine:/sbin"
    assert once["NO_PROXY"].startswith("intra.example,localhost,")
    assert completed(once) == once


def test_without_a_proxy_nothing_is_said_about_one() -> None:
    assert "NO_PROXY" not in completed({"PATH": "/bin", "https_proxy": ""})


@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "https_proxy", "all_proxy"])
def test_a_proxy_is_not_asked_for_the_clusters_own_addresses(variable: str) -> None:
    environment, network = completed({variable: "http://proxy.example:3128"}), Network()
    for name in ("NO_PROXY", "no_proxy"):
        assert {network.gateway, network.pods, network.services, "localhost", ".svc"} <= set(
            environment[name].split(",")
        )


def test_a_list_in_the_lower_spelling_is_kept_in_both() -> None:
    environment = completed({"https_proxy": "http://proxy.example:3128", "no_proxy": "intra.example"})
    assert environment["NO_PROXY"] == environment["no_proxy"]
    assert environment["NO_PROXY"].startswith("intra.example,")


def test_the_users_shell_is_told_literal_paths_and_needs_no_python() -> None:
    assert exports(SETTINGS, {}) == "export KUBECONFIG='/var/lib/dev cluster/kubeconfig' PATH=/c/bin:$PATH"


def test_a_shell_behind_a_proxy_is_told_the_way_past_it() -> None:
    environment = {"HTTPS_PROXY": "http://proxy.example:3128"}
    assert f"NO_PROXY={completed(environment)['NO_PROXY']}" in exports(SETTINGS, environment)


def test_programs_that_devcluster_runs_inherit_the_whole_environment() -> None:
    """In a process of its own: the command line completes the environment of the process that it is."""
    tell = "import atexit, os; atexit.register(lambda: print(os.environ['NO_PROXY'], os.environ['PATH'])); "
    run = "import sys, devcluster.__main__ as command; sys.argv[1:] = ['kubeconfig']; command.main()"
    environment = {"PATH": "/usr/bin", "HTTPS_PROXY": "http://proxy.example:3128", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(  # noqa: S603 - our own interpreter
        [sys.executable, "-c", tell + run], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == f"{completed(environment)['NO_PROXY']} /usr/bin:/usr/sbin:/sbin"
