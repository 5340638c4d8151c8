"""What the checks ask of their surroundings, and the real answers. Each has its time: whoever is asked may hang."""

import contextlib
import http.client
import json
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harborrl_trainer.errors import ConfigurationError, InfrastructureError

GPU_SECONDS = 60.0
RAY_SECONDS = 120.0
"""Of one question, while the nodes join: the next one may be answered."""
PARSER_SECONDS = 300.0
"""Miles imports SGLang and Megatron for it."""
REAP_SECONDS = 1.0
PARSER_CHECK = Path(__file__).resolve().parents[1] / "launch" / "parser_check.py"
_NODES = """
import json, ray
ray.init(address="auto", log_to_driver=False, configure_logging=False)
alive = [node for node in ray.nodes() if node["Alive"]]
print(json.dumps([node["Resources"].get("GPU", 0) for node in alive]))
"""


class NotYetError(Exception):
    """A source that may answer later."""


@dataclass(frozen=True)
class Question:
    """A command line, as Miles will get it."""

    argv: Sequence[str]
    environment: Mapping[str, str]
    root: Path
    """Miles' checkout."""
    depth: str = "parse"
    """`parse`: argparse alone. `validate`: Miles' and Megatron's own checks too, as far as they need no GPU."""


@dataclass(frozen=True)
class Answer:
    """What the image's own parser says."""

    verdict: str
    """`accepted`, `refused` or `unknown`."""
    said: str = ""
    stage: str = ""
    """How far it came: `import`, `functions`, `parse` or `validate`."""


@dataclass(frozen=True)
class World:
    """What the checks ask, so that a test can answer."""

    health: Callable[[str], dict[str, Any]]
    """URL -> the agent server's health document; raises NotYetError."""
    local_gpus: Callable[[], int | None]
    """GPUs that this container sees; None when there is no telling."""
    ray_gpus: Callable[[], Sequence[float]]
    """GPUs of each node that has joined; raises NotYetError."""
    judge: Callable[[Question], Answer]
    """The image's own argument parser."""
    sleep: Callable[[float], None] = time.sleep
    now: Callable[[], float] = time.monotonic


def ask_health(url: str) -> dict[str, Any]:
    if not url.startswith(("http://", "https://")):
        raise ConfigurationError(f"agentServer.url: {url} is no HTTP address")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{url.rstrip('/')}/health", timeout=5) as answer:
            document = json.loads(answer.read())
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise NotYetError(f"{url}/health does not answer ({error})") from error
    if not isinstance(document, dict) or document.get("status") not in ("ok", "degraded"):
        raise NotYetError(f"{url}/health is not ok")
    return document


def count_local_gpus(program: str = "nvidia-smi", seconds: float = GPU_SECONDS) -> int | None:
    """Raises InfrastructureError where the card's driver does not answer."""
    found = shutil.which(program)
    if found is None:
        return None
    try:
        told = _told([found, "-L"], seconds)
    except subprocess.TimeoutExpired as error:
        raise InfrastructureError(
            f"trainer.gpusPerNode: nvidia-smi of the head does not answer within {seconds:g} s, as with a GPU that "
            "failed; drain the node and look at it, a new attempt may get another one"
        ) from error
    return sum(line.startswith("GPU ") for line in told.stdout.splitlines())


def count_ray_gpus(script: str = _NODES, seconds: float = RAY_SECONDS) -> Sequence[float]:
    """Asked in a process of its own: a driver connects to Ray once, and that is Miles' to do."""
    try:
        told = _told([sys.executable, "-c", script], seconds)
        if told.returncode == 0:
            return [float(gpus) for gpus in json.loads(told.stdout.strip().splitlines()[-1])]
    except subprocess.TimeoutExpired as error:
        raise NotYetError(f"it does not name its nodes within {seconds:g} s") from error
    except (ValueError, LookupError, TypeError) as error:
        raise NotYetError("it does not name its nodes") from error
    reason = told.stderr.strip().splitlines()[-1:] or ["it said nothing"]
    raise NotYetError(f"cannot ask Ray for its nodes: {reason[0]}")


def ask_parser(question: Question, seconds: float = PARSER_SECONDS) -> Answer:
    """In a process of its own: what Miles imports for it must not stay in the driver."""
    path = f"{question.root}:{question.environment.get('PYTHONPATH', '')}"
    try:
        told = _told(
            [sys.executable, str(PARSER_CHECK)],
            seconds,
            said=json.dumps({"argv": list(question.argv), "depth": question.depth}),
            env={**question.environment, "PYTHONPATH": path.rstrip(":")},
            cwd=question.root,
        )
        answer = json.loads(told.stdout.strip().splitlines()[-1])
        return Answer(str(answer["verdict"]), str(answer["message"]), str(answer["stage"]))
    except subprocess.TimeoutExpired:
        return Answer("unknown", f"it takes longer than {seconds:g} s")
    except (OSError, ValueError, LookupError, TypeError) as error:
        return Answer("unknown", f"{type(error).__name__}: {error}")


def _told(
    command: list[str],
    seconds: float,
    *,
    said: str = "",
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """What a program answers to `said`. Raises subprocess.TimeoutExpired.

    One that hangs is killed and not waited for as `subprocess.run` does: a card that failed holds it beyond SIGKILL.
    """
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=env, cwd=cwd)  # noqa: S603 - our own scripts, or as found on PATH
    try:
        out, err = process.communicate(said, timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        for stream in (process.stdin, process.stdout, process.stderr):
            with contextlib.suppress(OSError):
                stream.close()  # type: ignore[union-attr] # pipes, as asked for
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(REAP_SECONDS)
        raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


REAL = World(health=ask_health, local_gpus=count_local_gpus, ray_gpus=count_ray_gpus, judge=ask_parser)
