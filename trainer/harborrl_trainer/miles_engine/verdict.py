"""What Miles' end means: its exit code and last output -> an exit code of docs/contracts.md and one sentence. Pure.

Miles says almost everything by a traceback and exit code 1. The causes are looked for in the order of `CAUSES`, since
one failure shows as several: a full disk is also a dead actor, a wrong argument also an assertion. The driver's last
traceback is asked first. What else was written may be text of a model or a sandbox, and counts for few causes.
"""

import json
import re
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harborrl_trainer.errors import (
    APPLICATION,
    ConfigurationError,
    InfrastructureError,
    StorageError,
)
from harborrl_trainer.failures import MEMORY_ADVICE, TORCH_WRITER, one_line

LAST_LINES = 150
"""Of the output that are searched: earlier ones may tell of troubles that were overcome."""
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_RAY_ERRORS = (
    "RayActorError|ActorDiedError|ActorUnavailableError|ActorUnschedulableError|NodeDiedError|WorkerCrashedError|"
    "LocalRayletDiedError|ObjectLostError|OwnerDiedError|RaySystemError|RpcError|TaskUnschedulableError"
)
_ARGUMENT_FILES = r"(?:miles|megatron|megatron/training)/(?:utils/|training/)?arguments\.py"
_TRACEBACK = "Traceback (most recent call last)"
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
_RAISED = re.compile(r"(?:[\w.]+\.)?\w*(?:Error|Exception)(?:\(\w+\))?: ")
_MODEL_TEXT = "text_preview="
"""Miles prints samples behind it."""

Elsewhere = Literal["never", "raised", "said"]


@dataclass(frozen=True)
class Cause:
    pattern: re.Pattern[str]
    exit_code: int
    advice: str
    """What broke and what to do; what Miles said follows it."""
    elsewhere: Elsewhere = "never"
    """Outside of the last traceback: `said` in any line, or `raised` as an exception while that traceback hides why."""


def _cause(pattern: str, exit_code: int, advice: str, elsewhere: Elsewhere = "never") -> Cause:
    return Cause(re.compile(pattern), exit_code, advice, elsewhere)


CAUSES: tuple[Cause, ...] = (
    _cause(
        r"No space left on device|Disk quota exceeded|Read-only file system|Stale file handle|"
        r"\[Errno (?:28|30|116|122)\]|\(os error (?:28|30|116|122)\)|" + TORCH_WRITER,
        StorageError.exit_code,
        "a volume is full or gone: make room or repair it, the run goes on from its checkpoint",
        "raised",
    ),
    _cause(
        r"^\S*(?:train|train_async)\.py: error: |error: unrecognized arguments",
        ConfigurationError.exit_code,
        "Miles does not take its arguments: correct trainer.config, recipeArgs, extraArgs or the image",
    ),
    _cause(
        r"EveryGroupHopeless",
        ConfigurationError.exit_code,
        "no task of the data set can be run: correct the data set, the tasks volume or agentServer.agentName",
    ),
    _cause(
        r"EveryGroupAborted|AgentServerError|AgentServerGone",
        InfrastructureError.exit_code,
        "the agent server fails every trial: look at it and at its sandboxes, the run goes on from its checkpoint",
    ),
    _cause(
        r"CUDA out of memory|torch\.OutOfMemoryError|torch\.cuda\.OutOfMemoryError|CUDA error: out of memory",
        APPLICATION,
        "CUDA out of memory: lower max-tokens-per-gpu, sglangMemFractionStatic or maxSeqLen, or split the model more",
        "said",
    ),
    _cause(
        r"ray\.exceptions\.OutOfMemoryError|running low on memory|OOM-killed|killed due to .*memory pressure",
        InfrastructureError.exit_code,
        MEMORY_ADVICE,
        "said",
    ),
    _cause(
        r"uncorrectable ECC error|fallen off the bus|CUDA error: unspecified launch failure|\bXid \(|NVLink.*error",
        InfrastructureError.exit_code,
        "a GPU failed: look at its node, a new attempt may get another one",
        "said",
    ),
    _cause(
        r"ncclSystemError|ncclRemoteError|ncclInternalError|ncclUnhandledCudaError|NCCL error|DistBackendError|"
        r"Watchdog caught collective operation timeout|NCCL.*(?:timed out|timeout)",
        InfrastructureError.exit_code,
        "NCCL failed: a rank died or the network between the nodes broke; look at the trainer pods and their network",
        "said",
    ),
    _cause(
        r"Port \d+ is already in use",
        InfrastructureError.exit_code,
        "a port of the head is taken by another process: give this job other trainer.ports",
    ),
    _cause(
        r"does not exist or is an empty directory|ref_load .* does not exist|please check the path",
        ConfigurationError.exit_code,
        "a model or checkpoint that Miles was given is not there: correct model.path, model.refLoad or resumeFrom",
    ),
    _cause(
        r"^ModuleNotFoundError: |^ImportError: ",
        ConfigurationError.exit_code,
        "the image lacks a module: set trainer.image to an image of Miles of the commit in config.milesSrcCommit",
    ),
)

LOST = _cause(
    rf"\b(?:{_RAY_ERRORS})\b|Failed to connect to GCS|Could not find any running Ray instance",
    InfrastructureError.exit_code,
    "Ray lost an actor or a node: look at the trainer pods and nodes, a new attempt may succeed",
    "said",
)
"""Last of all, since a dead actor seldom says why it died."""


@dataclass(frozen=True)
class Ended:
    exit_code: int
    sentence: str


def ended(code: int, output: str, *, reached: int = 0, rollouts: int = 0) -> Ended:
    """`code` as subprocess gives it (negative: a signal); `output` the end of what Miles wrote.

    `reached`: the last rollout that was trained or saved, of `rollouts` in the whole run (0: not known).
    """
    if code == 0:
        return _finished(reached, rollouts)
    lines = [line.strip() for line in _ANSI.sub("", output).splitlines() if line.strip()][-LAST_LINES:]
    if found := _found(lines):
        cause, said = found
        return Ended(cause.exit_code, one_line(f"Miles: {cause.advice}; it said: {said}"))
    if _raised_by_arguments(lines):
        advice = "Miles refuses its arguments: correct trainer.config, recipeArgs or extraArgs"
        return Ended(ConfigurationError.exit_code, one_line(f"Miles: {advice}; it said: {_last(lines)}"))
    if code < 0:
        return _by_signal(-code)
    where = "look at traces/driver.log" if lines else "it wrote nothing"
    return Ended(APPLICATION, one_line(f"Miles: ended with exit code {code}, {where}; it said: {_last(lines)}"))


def _finished(reached: int, rollouts: int) -> Ended:
    """Miles has ways to leave its loop early, and ends with 0 by them too."""
    if reached < rollouts - 1:
        said = f"ended with exit code 0 after {reached + 1} of {rollouts} rollouts"
        return Ended(APPLICATION, f"Miles: {said}; look at traces/driver.log, and at raw flags that end a run early")
    return Ended(0, "Miles: trained until its last rollout")


def _found(lines: list[str]) -> tuple[Cause, str] | None:
    """The cause and the last line that tells it."""
    last, others = _last_traceback(lines)
    hidden = not _starts(last) or any(LOST.pattern.search(line) for line in last)
    raised = [line for line in others if hidden and _RAISED.match(line)]
    pools: dict[Elsewhere, list[str]] = {"never": [], "raised": raised, "said": others}
    places = [(cause, last) for cause in CAUSES] + [(cause, pools[cause.elsewhere]) for cause in CAUSES]
    for cause, place in (*places, (LOST, last), (LOST, pools[LOST.elsewhere])):
        for line in reversed(place):
            if cause.pattern.search(line):
                return cause, line
    return None


def _last_traceback(lines: list[str]) -> tuple[list[str], list[str]]:
    """What the driver wrote from its last traceback on, those that it chains included, or all without one; the rest."""
    told = [line for line in lines if _MODEL_TEXT not in line]
    own = [index for index, line in enumerate(told) if line == _without_echo(line)]
    starts = _starts([told[index] for index in own])
    start = starts.pop() if starts else 0
    while starts and told[own[start - 1]].startswith(_CHAINED):
        start = starts.pop()
    last = set(own[start:])
    rest = [_without_echo(line) for index, line in enumerate(told) if index not in last]
    return [told[index] for index in sorted(last)], rest


def _starts(lines: list[str]) -> list[int]:
    return [index for index, line in enumerate(lines) if line.startswith(_TRACEBACK)]


def given_up(path: Path) -> Ended | None:
    """The verdict of our own rollout layer inside Miles; None while there is none."""
    try:
        document = json.loads(path.read_bytes())
        return Ended(int(document["exitCode"]), one_line(f"rollout: {document['message']}"))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _by_signal(number: int) -> Ended:
    if number == signal.SIGKILL:
        sentence = (
            "Miles: its driver was killed (signal 9): if the head pod was near its memory limit, give it more memory"
        )
        return Ended(128 + number, sentence)
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    if number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        sentence = f"Miles: its driver was ended from outside ({name}): look at the head pod, a new attempt may succeed"
        return Ended(InfrastructureError.exit_code, sentence)
    return Ended(APPLICATION, f"Miles: its driver crashed ({name}): look at traces/driver.log")


def _raised_by_arguments(lines: list[str]) -> bool:
    """The last frame of the last traceback is in the file that checks arguments."""
    starts = _starts(lines)
    if not starts:
        return False
    frames = [line for line in lines[starts[-1] :] if re.match(r'File ".*", line \d+, in ', line)]
    return bool(frames) and re.search(_ARGUMENT_FILES, frames[-1]) is not None


def _without_echo(line: str) -> str:
    """Ray marks what it copies from its other processes: `(MegatronTrainRayActor pid=12, ip=10.0.0.3) ...`."""
    return re.sub(r"^\((?:raylet|[\w.:<>]+ pid=\d+)[^)]*\)\s*", "", line)


def _last(lines: list[str]) -> str:
    own = [line for line in lines if line == _without_echo(line)]
    return (own or lines or ["nothing"])[-1]
