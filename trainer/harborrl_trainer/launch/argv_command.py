"""`python -m harborrl_trainer argv`: what a job would start, before a GPU is spent.

Standard output is one JSON object with `argv` and `env`, and `files` where there are some, or lines to lay beside a
launcher; every adjustment and every quirk goes to standard error, one a line. A manifest is resolved by the operator
package, in a process of its own: the parts share data, not modules (docs/decisions/0082).
"""

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic.alias_generators import to_camel

from harborrl_trainer.config import HarborFrameworkConfig, warnings_of
from harborrl_trainer.errors import ConfigurationError
from harborrl_trainer.job import JobDocument, parse_job
from harborrl_trainer.launch.plan import launch
from harborrl_trainer.launch.presets import Preset, presets
from harborrl_trainer.launch.seam import Adjustment, Launch, Start
from harborrl_trainer.launch.versions import versions
from harborrl_trainer.launch.words import arguments_of
from harborrl_trainer.layout import RunLayout

SHAPES = {"fixed": 1, "async": 8, "lora": 4}
"""Nodes of the documented run of each sizing."""


class Dry(NamedTuple):
    """What is to be printed."""

    whole: str
    """One JSON object, or lines."""
    said: tuple[str, ...]
    """One line an adjustment, remark or quirk."""


def argv(preset: str | None, file: Path | None, *, lines: bool = False) -> Dry:
    """The launch of a preset's documented shape, or of a job document or manifest."""
    job, notes = _job(preset, file)
    made = launch(job, dry_start(job))
    adjusted = (f"adjusted: {_said(note)}" for note in said_once(notes, made))
    remarks = (f"warning: {_said(note)}" for note in made.remarks)
    return Dry(_lines(made) if lines else _json(made), (*adjusted, *remarks, *_quirks(job)))


def said_once(notes: Sequence[Adjustment], made: Launch) -> list[Adjustment]:
    """What the operator adjusted, then the launch; of what both did, the launch's reason is the fuller one."""
    own = [note for note in made.adjustments if note not in made.remarks]
    return [*(note for note in notes if note.what not in {one.what for one in own}), *own]


def _json(made: Launch) -> str:
    whole: dict[str, Any] = {"argv": list(made.argv), "env": dict(made.env)}
    if made.files:
        whole["files"] = dict(made.files)
    return json.dumps(whole, indent=1)


def _lines(made: Launch) -> str:
    """Each variable, then the script, then each flag with its values, all as a shell reads them."""
    script, *words = made.argv
    variables = [f"{name}={shlex.quote(value)}" for name, value in sorted(made.env.items())]
    return "\n".join([*variables, script, *(shlex.join(argument.words()) for argument in arguments_of(words))])


def dry_start(job: JobDocument) -> Start:
    """The first incarnation's own directories."""
    mine = RunLayout.of(job).incarnation(1, 1)
    return Start(1, 1, traces=mine.traces, checkpoints=mine.checkpoints, files=mine.checkpoints / "launch")


def _job(preset: str | None, file: Path | None) -> tuple[JobDocument, list[Adjustment]]:
    if preset is not None:
        known = presets().get(preset)
        if known is None:
            raise ConfigurationError(f"--preset: there is no '{preset}'; choose one of {', '.join(presets())}")
        return parse_job(json.dumps(sample(known)), "the preset's sample job"), []
    if file is None:
        raise ConfigurationError("argv: give --preset NAME or --file FILE")
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{file}: is not UTF-8 (byte {error.start}); save it as UTF-8") from error
    except OSError as error:
        raise ConfigurationError(
            f"{file}: cannot be read ({error.strerror}); name a job document or manifest"
        ) from error
    if text.lstrip().startswith("{") and '"schemaVersion"' in text:
        return parse_job(text, str(file)), []
    return _resolved(file)


def _resolved(file: Path) -> tuple[JobDocument, list[Adjustment]]:
    command = [sys.executable, "-m", "harborrl_operator.document", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own module
    if "No module named" in done.stderr and "harborrl_operator" in done.stderr:
        raise ConfigurationError(
            f"{file}: a manifest is resolved by the operator package, which this environment lacks; install"
            " harborrl[operator], or give the job document (ConfigMap <job>-config)"
        )
    if done.returncode != 0:
        raise ConfigurationError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"{file}: unreadable")
    whole = json.loads(done.stdout)
    notes = [Adjustment(one["field"], one["value"], one["reason"]) for one in whole["adjustments"]]
    return parse_job(json.dumps(whole["document"]), str(file)), notes


def sample(preset: Preset) -> dict[str, Any]:
    """The preset in its documented shape, with names that say what they stand for."""
    commit = next(commit for commit in versions() if commit in preset.versions)
    storage = {role: f"/mnt/{role}" for role in ("models", "tasks", "checkpoints", "traces", "trials")}
    return {
        "schemaVersion": 1,
        "job": {"namespace": "default", "name": preset.name, "uid": "00000000-0000-0000-0000-000000000000"},
        "engine": "miles",
        "mode": preset.mode,
        "preset": preset.name,
        "model": {"path": "/mnt/models/MODEL", **({} if preset.lora else {"refLoad": "/mnt/models/MODEL_torch_dist"})},
        "data": {"jsonl": "/mnt/tasks/train.jsonl"},
        "config": {"milesSrcCommit": commit, "colocate": preset.mode == "sync"},
        "explicitConfig": ["milesSrcCommit"],
        "maxSeqLen": preset.max_seq_len,
        "nodes": SHAPES[preset.sizing],
        "gpusPerNode": 8,
        "trainerHost": f"{preset.name}-trainer.default.svc",
        "agentServer": {"url": f"http://{preset.name}-agent.default.svc:30000"},
        "storage": storage,
        "runPath": f"default/{preset.name}-00000000",
    }


def _said(note: Adjustment) -> str:
    return f"{note.what}: {note.value} ({note.reason})"


def _quirks(job: JobDocument) -> Iterator[str]:
    raw = HarborFrameworkConfig(recipe_args=job.recipe_args, extra_args=job.extra_args)
    for quirk in warnings_of(raw):
        yield f"warning: trainer.{to_camel(quirk.field)}: {quirk.message}"
