"""The rollout layer and Miles' side of it run inside Miles' image: Python 3.10, standard library and httpx only."""

import ast
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from shutil import which

import httpx
import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "trainer" / "harborrl_trainer"
MODULES = sorted([*PACKAGE.glob("rollout/*.py"), *PACKAGE.glob("miles/*.py"), *PACKAGE.glob("miles/pythonpath/*.py")])
ON_PATH = PACKAGE / "miles" / "pythonpath"

LIST_FOREIGN_MODULES = """
import sys
before = set(sys.modules)
import httpx
allowed = set(sys.modules) | before
import {modules}
import swe_agent_function, generate
loaded = {{name.split(".")[0] for name in set(sys.modules) - allowed}}
ours = {{"harborrl_trainer", "swe_agent_function", "generate"}}
print(sorted(loaded - sys.stdlib_module_names - ours))
parts = ("harborrl_trainer.rollout", "harborrl_trainer.miles")
print(sorted(name for name in sys.modules if name.startswith("harborrl_trainer.") and not name.startswith(parts)))
"""

RUN_A_TRIAL = """
import asyncio, json, os, sys
import generate, swe_agent_function
from harborrl_trainer.miles import process
from harborrl_trainer.miles.wrapper import Generate

async def served(reader, writer):
    while head := await reader.readuntil(b"\\r\\n\\r\\n"):
        length = [line for line in head.decode().lower().split("\\r\\n") if line.startswith("content-length")]
        await reader.readexactly(int(length[0].split(":")[1]) if length else 0)
        reply = {"reward": 0.5, "exit_status": "Submitted", "eval_report": {"reward": 0.5}}
        body = json.dumps({**reply, "status": "ok", "capacity": 4}).encode()
        writer.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(body) + body)

async def main():
    server = await asyncio.start_server(served, "127.0.0.1", 0)
    os.environ["AGENT_SERVER_URL"] = "http://127.0.0.1:%d" % server.sockets[0].getsockname()[1]
    Generate(load=lambda: None)
    told = await swe_agent_function.run("http://127.0.0.1:1/sessions/s1", "task", {}, {"instance_id": "t"})
    sample = type("Sample", (), {"metadata": told})()
    print(told["exit_status"], await generate.reward_func(None, sample), generate.RolloutFn.__name__)
    await process.existing().close()

asyncio.run(main())
"""


def _runs(interpreter: str) -> bool:
    """A shim of pyenv may be there for a version that is not chosen."""
    done = subprocess.run([interpreter, "-V"], capture_output=True, check=False)  # noqa: S603 - an interpreter's version
    return done.returncode == 0


@cache
def python_3_10() -> str | None:
    """An interpreter of that version, from PATH or from where the usual tools keep them."""
    homes = [Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions", Path("~/.local/share/uv/python")]
    kept = [found for home in homes for found in sorted(home.expanduser().glob("*3.10*/bin/python3.10"))]
    for candidate in [which("python3.10"), *map(str, kept)]:
        if candidate and _runs(candidate):
            return candidate
    return None


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_every_module_parses_as_python_3_10(path: Path) -> None:
    ast.parse(path.read_text(), feature_version=(3, 10))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_module_uses_a_name_that_python_3_10_has_not(path: Path) -> None:
    """What the grammar does not show: typing's and asyncio's newer names."""
    newer = {
        "override",
        "Self",
        "assert_never",
        "StrEnum",
        "TaskGroup",
        "timeout_at",
        "UTC",
        "ExceptionGroup",
        "batched",
    }
    tree = ast.parse(path.read_text())
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    asyncio_names = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "asyncio"
    }
    assert not (imported & newer)
    assert not (asyncio_names & {"timeout", "timeout_at", "TaskGroup", "Runner", "Barrier", "eager_task_factory"})


def test_importing_the_layer_pulls_in_nothing_but_httpx() -> None:
    modules = ", ".join(
        "harborrl_trainer." + ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        for path in MODULES
        if path.stem != "__init__" and path.parent != ON_PATH
    )
    done = subprocess.run(  # noqa: S603 - our own interpreter with our own text
        [sys.executable, "-c", LIST_FOREIGN_MODULES.format(modules=modules)],
        env={"PYTHONPATH": os.pathsep.join([str(PACKAGE.parent), str(ON_PATH)])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["[]", "[]"]


def test_a_trial_runs_on_a_real_python_3_10_with_httpx_alone(tmp_path: Path) -> None:
    interpreter = python_3_10()
    if interpreter is None:
        pytest.skip("no python3.10 on PATH, in pyenv or in uv: only the grammar was checked")
    packages = Path(httpx.__file__).parents[1]
    for name in ("httpx", "httpcore", "h11", "anyio", "certifi", "idna", "sniffio", "typing_extensions.py"):
        if (packages / name).exists():
            (tmp_path / name).symlink_to(packages / name)
    _stand_in_for_exceptiongroup(tmp_path)
    done = subprocess.run(  # noqa: S603 - an interpreter of this machine with our own text
        [interpreter, "-W", "error", "-c", RUN_A_TRIAL],
        env={"PYTHONPATH": os.pathsep.join([str(PACKAGE.parent), str(ON_PATH), str(tmp_path)])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout.split(), done.returncode) == (["Submitted", "0.5", "RolloutFn"], 0), done.stderr


def _stand_in_for_exceptiongroup(folder: Path) -> None:
    """Anyio's one dependency below 3.11, which an environment of 3.12 has not: two names that nothing here raises."""
    (folder / "exceptiongroup.py").write_text(
        "class BaseExceptionGroup(BaseException): ...\nclass ExceptionGroup(BaseExceptionGroup, Exception): ...\n"
    )
