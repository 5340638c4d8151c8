"""Jobs and starts for tests of the launch, each test saying only what differs."""

import json
from pathlib import Path
from typing import Any

from harborrl_trainer.job import JobDocument, parse_job
from harborrl_trainer.launch import Launch, Start, launch
from harborrl_trainer.launch.argv_command import sample
from harborrl_trainer.launch.presets import presets
from support import jobs

NEW, OLD = "31f1ca961a94cb860cec3b2dea34ec332bfa8f76", "9a003644739f4e6dd509e2e8337e8ae7e571941c"
OLD_IMAGE = "radixark/miles:dev-202604201238"


def start(**changes: Any) -> Start:
    places: dict[str, Any] = {
        "attempt": 1,
        "incarnation": 1,
        "traces": Path("/mnt/traces/run"),
        "checkpoints": Path("/mnt/checkpoints/run"),
        "files": Path("/mnt/checkpoints/run/launch"),
    }
    return Start(**(places | changes))


def written(name: str, **fields: Any) -> JobDocument:
    """The preset's sample document with whole fields replaced."""
    return parse_job(json.dumps(sample(presets()[name]) | fields))


def of_preset(name: str, **changes: Any) -> JobDocument:
    """The preset's sample job; `__` stands for the dot of a path, `config__lr` also counts as explicit."""
    return _changed(sample(presets()[name]), changes)


def plain(**changes: Any) -> JobDocument:
    """A job of Qwen3-0.6B on one node of 8 GPUs, without a preset, on the newer Miles."""
    document = jobs.document(
        engine="miles",
        image="",
        model={"path": "/mnt/models/Qwen3-0.6B"},
        data={"jsonl": "/mnt/tasks/train.jsonl"},
        nodes=1,
        gpusPerNode=8,
        maxSeqLen=16384,
    )
    document["config"] |= {"milesSrcCommit": NEW}
    document["explicitConfig"] = ["milesSrcCommit"]
    return _changed(document, changes)


def _changed(document: dict[str, Any], changes: dict[str, Any]) -> JobDocument:
    for path, value in changes.items():
        *parents, last = path.split("__")
        part = document
        for parent in parents:
            part = part.setdefault(parent, {})
        part[last] = value
        if parents == ["config"]:
            document["explicitConfig"] = [*document["explicitConfig"], last]
    return parse_job(json.dumps(document))


def launched(job: JobDocument, **places: Any) -> Launch:
    return launch(job, start(**places))


def value(made: Launch, flag: str) -> list[str] | None:
    """Words after the last `flag`; None where there is none."""
    if flag not in made.argv:
        return None
    last = len(made.argv) - 1 - made.argv[::-1].index(flag)
    following = made.argv[last + 1 :]
    end = next((index for index, word in enumerate(following) if word.startswith("--")), len(following))
    return list(following[:end])
