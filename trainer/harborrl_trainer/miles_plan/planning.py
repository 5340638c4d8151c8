"""Job and volume -> the plan of one incarnation, its claim, and the files that Miles will read. Once an incarnation."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harborrl_trainer import files, index
from harborrl_trainer.checkpoints import on_volume
from harborrl_trainer.errors import FINISHED, ConfigurationError, TrainerError
from harborrl_trainer.failures import one_line
from harborrl_trainer.index import Claim
from harborrl_trainer.job import JobDocument
from harborrl_trainer.launch.context import training_gpus
from harborrl_trainer.launch.environment import CHECKOUTS, FUNCTIONS, VERDICT_FILE
from harborrl_trainer.launch.seam import Launch, Start
from harborrl_trainer.layout import LAUNCH_FOLDER, IncarnationLayout, RunLayout
from harborrl_trainer.miles_engine import plan as plans
from harborrl_trainer.miles_engine.plan import Ending, Plan, Retention, Seal, SetAside
from harborrl_trainer.miles_plan import arguments, demands, found
from harborrl_trainer.miles_plan.resume import Found, How, Resume
from harborrl_trainer.miles_plan.view import make_view
from harborrl_trainer.prompts import read_prompts

PROMPTS_FILE = "prompts.jsonl"
"""Where the launch looks for the prompts of a job that names task directories."""
VIEW_FOLDER = "load"
CODE_VARIABLE = "HARBORRL_CODE"
"""Environment variable with the directory, in Miles' containers, into which our half was copied."""

type MakeLaunch = Callable[[JobDocument, Start], Launch]


@dataclass(frozen=True)
class Planner:
    """Makes plans for one job."""

    job: JobDocument
    launch: MakeLaunch
    environment: Mapping[str, str]

    def plan(self, attempt: int, incarnation: int) -> Path:
        """The incarnation's plan file; written once, whoever asks again gets the same. Raises OSError alone.

        What speaks against a start is a plan too: one that says how the driver ends.
        """
        mine = RunLayout.of(self.job).incarnation(attempt, incarnation)
        place = folder_of(mine) / plans.NAME
        if not place.exists():
            files.replace(place, plans.dump(self._made(mine)))
        return place

    def _made(self, mine: IncarnationLayout) -> Plan:
        try:
            return self._plan(mine)
        except TrainerError as error:
            ending = Ending(error.exit_code, one_line(str(error)))
            return Plan(*mine.id, ending=ending, env=self._environment({}))

    def _plan(self, mine: IncarnationLayout) -> Plan:
        demands.check_inputs(self.job)
        saved, begin = found.beginning(self.job)
        launch = self._launch(mine, begin)
        demands.check_served(launch)
        total = arguments.setting(launch, "num_rollout")
        self._claim(mine, begin)
        if total is not None and begin.first_rollout >= int(total):
            said = f"Miles: all {total} rollouts are trained already; raise config.numRollout to go on"
            return Plan(*mine.id, ending=Ending(FINISHED, said), env=self._environment({}))
        if begin.how in (How.FULL, How.ADAPTER):
            # What Miles loads where `--load` is unset: an adapter goes on upon the base that it began on.
            base = arguments.value_of(launch.argv, "--ref-load") or self.job.model.path
            make_view(_view(mine), begin, Path(base))
        for path, text in {**launch.files, **_prompts(self.job, mine)}.items():
            files.replace(Path(path), text)
        return self._of(mine, begin, launch, saved)

    def _launch(self, mine: IncarnationLayout, begin: Resume) -> Launch:
        adapter = begin.checkpoint / "adapter" if begin.how is How.ADAPTER and begin.checkpoint else None
        load = {How.RELEASE: begin.checkpoint, How.FULL: _view(mine)}.get(begin.how)
        if (adapter is not None) != (self.job.lora is not None) and begin.how is not How.MODEL:
            has, wants = ("a LoRA adapter", "full weights") if adapter else ("full weights", "a LoRA adapter")
            raise ConfigurationError(
                f"trainer.lora: {begin.checkpoint} holds {has}, but the job trains {wants}; set or remove "
                "trainer.lora, or begin a new job"
            )
        if adapter is not None:
            demands.check_ranks(adapter, training_gpus(self.job))
        start = Start(
            attempt=mine.id.attempt,
            incarnation=mine.id.incarnation,
            traces=mine.traces,
            checkpoints=mine.checkpoints,
            files=folder_of(mine),
            load=load,
            adapter=adapter,
            start_rollout=begin.first_rollout,
            code=Path(self._code),
            optimizer=begin.optimizer,
        )
        made = self.launch(self.job, start)
        if adapter is not None:
            demands.check_ways(adapter.parent, arguments.ways(made))
        settings: dict[str, object] = {} if begin.how is How.MODEL else {"start_rollout_id": begin.first_rollout}
        if adapter is not None:
            # For Miles a start like the first, but for the adapter, the ids, and the place in the data set.
            settings["load"] = str(_view(mine))
        return arguments.with_settings(made, settings, folder_of(mine))

    def _claim(self, mine: IncarnationLayout, begin: Resume) -> None:
        resumed = begin.checkpoint if begin.how in (How.FULL, How.ADAPTER) else None
        claim = Claim(
            attempt=mine.id.attempt,
            incarnation=mine.id.incarnation,
            first_rollout=begin.first_rollout,
            resumed_from=on_volume(self.job, resumed) if resumed else None,
            optimizer=begin.optimizer if resumed else None,
            set_aside=tuple(on_volume(self.job, one.path) for one in begin.set_aside),
        )
        index.add_claim(RunLayout.of(self.job).index, claim)

    def _of(self, mine: IncarnationLayout, begin: Resume, launch: Launch, saved: Sequence[Found]) -> Plan:
        trigger = arguments.value_of(launch.argv, "--save-trigger-sentinel") or ""
        adjusted = [f"{one.what} is {one.value}: {one.reason}" for one in launch.adjustments]
        return Plan(
            *mine.id,
            argv=launch.argv,
            env=self._environment(launch.env),
            roots=CHECKOUTS,
            traces=str(mine.traces),
            checkpoints=str(mine.checkpoints),
            first_rollout=begin.first_rollout,
            rollouts=int(arguments.setting(launch, "num_rollout") or 0),
            stop_request=str(mine.stop_request),
            verdict=str(folder_of(mine) / VERDICT_FILE),
            trigger=trigger,
            grace_seconds=self.job.checkpoint.grace_seconds,
            checks=demands.of_container(self.job, launch),
            data_state=found.keeps_data_state(self.job),
            ranks=training_gpus(self.job),
            tells_trained=arguments.has_flag(launch.argv, "--dump-details"),
            ways=arguments.ways(launch),
            seals=tuple(_seal(one) for one in begin.seals),
            set_aside=tuple(SetAside(str(one.path), one.problem) for one in begin.set_aside),
            retention=_retention(self.job, begin, saved),
            notices=(*begin.notices, *adjusted),
        )

    @property
    def _code(self) -> str:
        return self.environment.get(CODE_VARIABLE) or str(Path(__file__).resolve().parents[2])

    def _environment(self, wanted: Mapping[str, str]) -> dict[str, str]:
        """Our half first on the path of every process of Miles, on every node."""
        ours = [self._code, f"{self._code}/{FUNCTIONS}"]
        theirs = [part for part in wanted.get("PYTHONPATH", "").split(":") if part]
        path = ":".join(dict.fromkeys([*ours, *theirs]))
        return {**wanted, "PYTHONPATH": path}


def folder_of(mine: IncarnationLayout) -> Path:
    return mine.checkpoints.parent / LAUNCH_FOLDER


def _prompts(job: JobDocument, mine: IncarnationLayout) -> dict[str, str]:
    """Miles reads rows alone: task directories become them."""
    if job.data.tasks is None:
        return {}
    rows = (
        {"prompt": prompt.text, "metadata": {**prompt.metadata, "instance_id": prompt.instance_id}}
        for prompt in read_prompts(job.data).prompts
    )
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    return {str(folder_of(mine) / PROMPTS_FILE): text}


def _seal(late: Found) -> Seal:
    return Seal(str(late.checkpoints), late.rollout, not late.data_problem, found.ways_of(late.path))


def _view(mine: IncarnationLayout) -> Path:
    return mine.checkpoints.parent / VIEW_FOLDER


def _retention(job: JobDocument, begin: Resume, saved: Sequence[Found]) -> Retention:
    run = RunLayout.of(job)
    claims = index.read_claims(run.index)
    usable = [one for one in saved if not one.problem and index.owner(claims, one.rollout) in {one.id, None}]
    # An id that the new claim owns is collected again: what an overtaken incarnation saved under it is of no use.
    older = sorted((one for one in usable if one.rollout < begin.first_rollout), key=lambda one: (one.rollout, one.id))
    kept = {one.path for one in older}
    return Retention(
        keep=job.checkpoint.keep,
        index=str(run.index),
        older=tuple((one.rollout, str(one.path)) for one in older),
        loaded=str(begin.checkpoint or ""),
        leftovers=tuple(str(one.path) for one in saved if one.path not in kept),
    )
