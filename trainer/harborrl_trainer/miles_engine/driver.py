"""The driver of one incarnation: checks, Miles, seals, stop requests, and an exit code that the operator knows."""

import os
import re
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, TextIO

from harborrl_trainer.errors import STOPPED, ConfigurationError
from harborrl_trainer.miles.settings import Settings, SettingsError
from harborrl_trainer.miles_engine import checks, keeping, sealing, verdict
from harborrl_trainer.miles_engine.checkout import root_of
from harborrl_trainer.miles_engine.child import TERM_SECONDS, Child
from harborrl_trainer.miles_engine.plan import Plan
from harborrl_trainer.miles_engine.stopping import Act, Seen, Stopping
from harborrl_trainer.miles_engine.world import REAL, Question, World

LOOK_TICKS = 3
"""Between two looks at the checkpoints while nobody waits for one."""
GIVE_UP_SECONDS = 60.0
"""For Miles to end by itself, once our rollout layer has given the run up."""
KILLED = 128 + signal.SIGTERM


@dataclass(frozen=True)
class Surroundings:
    """All that the driver takes from its process, so that a test can give something else."""

    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    world: World = REAL
    out: BinaryIO = field(default_factory=lambda: sys.stdout.buffer)
    say: TextIO = field(default_factory=lambda: sys.stdout)


def drive(plan: Plan, around: Surroundings | None = None) -> int:
    """Until Miles has ended: its exit code, after a sentence as the last line. Raises TrainerError before the start."""
    here = around or Surroundings()
    for notice in plan.notices:
        _say(here, f"note: {notice}")
    if plan.ending is not None:
        return _leave(here, plan.ending.exit_code, plan.ending.sentence)
    for late in plan.seals:
        sealing.seal(Path(late.checkpoints), late.rollout, data_state_too=late.data_state, ways=late.ways)
    for damaged in plan.set_aside:
        sealing.set_aside(Path(damaged.path), damaged.reason)
    root = root_of(plan.argv[0], plan.roots, here.environment)
    environment = {**here.environment, **plan.env}
    _check_settings(environment)
    question = Question(plan.argv, environment, root)
    for notice in checks.run_checks(plan.checks, question, here.world):
        _say(here, f"note: {notice}")
    return _Driver(plan, root, here).run()


def _check_settings(environment: Mapping[str, str]) -> None:
    """What the rollout process would otherwise refuse minutes later, with Miles' engines up."""
    try:
        Settings.from_environment(environment)
    except SettingsError as error:
        raise ConfigurationError(f"trainer.env: {error}; correct it or leave it out") from error


class _Driver:
    def __init__(self, plan: Plan, root: Path, here: Surroundings) -> None:
        self._plan = plan
        self._here = here
        self._checkpoints = Path(plan.checkpoints)
        self._request = Path(plan.stop_request)
        self._trigger = Path(plan.trigger) if plan.trigger else None
        self._stopping = Stopping(has_trigger=bool(plan.trigger), grace_seconds=plan.grace_seconds)
        self._sealed = plan.first_rollout - 1
        self._looked = float("-inf")
        self._told = False
        self._trouble = ""
        self._over_since: float | None = None
        self._root = root

    def run(self) -> int:
        before = {number: signal.signal(number, self._on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            return self._run()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, *_: object) -> None:
        self._told = True

    def _run(self) -> int:
        argv = [sys.executable, str(self._root / self._plan.argv[0]), *self._plan.argv[1:]]
        child = Child(argv, {**self._here.environment, **self._plan.env}, self._root, self._here.out)
        _say(self._here, f"Miles runs as process {child.pid}, from rollout {self._plan.first_rollout} on")
        try:
            while (code := child.wait(self._plan.tick_seconds)) is None:
                act = self._step()
                if act in (Act.END_SAVED, Act.END_UNSAVED):
                    child.end()
                    return self._stopped(act)
                if self._is_over(time.monotonic()):
                    break
        except BaseException:
            child.end()
            raise
        code = child.end(0 if code is not None else TERM_SECONDS)  # or what it left behind in its group
        self._look()
        if self._told and code != 0:
            return _leave(self._here, KILLED, "Miles: ended with this driver when it was told to go")
        given_up = self._given_up() if code else None
        found = given_up or verdict.ended(code, child.tail, reached=self._reached(), rollouts=self._plan.rollouts)
        return _leave(self._here, found.exit_code, found.sentence)

    def _is_over(self, now: float) -> bool:
        """Our rollout layer gave up, and Miles has had its time to end by that."""
        if self._over_since is None and self._given_up() is not None:
            self._over_since = now
        return self._over_since is not None and now - self._over_since >= GIVE_UP_SECONDS

    def _given_up(self) -> verdict.Ended | None:
        """What `harborrl_trainer.miles` left when every group had failed, perhaps on another node."""
        return verdict.given_up(Path(self._plan.verdict)) if self._plan.verdict else None

    def _step(self) -> Act:
        now = time.monotonic()
        if self._told:
            self._stopping.tell(now)
        requested = self._is_requested()
        if now - self._looked >= LOOK_TICKS * self._plan.tick_seconds or requested or self._told:
            self._looked = now
            self._look()
        trigger = self._trigger is not None and self._trigger.exists()
        act = self._stopping.step(
            Seen(now=now, requested=requested, trigger=trigger, sealed=self._sealed, trained=self._trained())
        )
        if act is Act.GIVE and self._trigger is not None:
            self._trigger.touch()
            _say(self._here, "told to stop: Miles is asked for a checkpoint")
        if act is Act.TAKE_BACK and self._trigger is not None:
            self._trigger.unlink(missing_ok=True)
        return act

    def _is_requested(self) -> bool:
        try:
            return self._request.exists()
        except OSError as error:
            self._complain(f"{self._request}: {error.strerror}; a request to stop cannot be heard")
            return False

    def _trained(self) -> int | None:
        """By the names of train_data alone."""
        if not self._plan.tells_trained:
            return None
        try:
            paths = list((Path(self._plan.traces) / "train_data").iterdir())
        except OSError:
            return None
        found = [int(match[1]) for path in paths if (match := re.fullmatch(r"(\d+)_\d+\.pt", path.name))]
        return max(found, default=self._plan.first_rollout - 1)

    def _reached(self) -> int:
        """The last rollout that this incarnation trained or saved, whole or not."""
        trained, before = self._trained(), self._plan.first_rollout - 1
        saved = [one.rollout for one in sealing.iterations(self._checkpoints)]
        return max(before, before if trained is None else trained, *saved)

    def _look(self) -> None:
        """Seals what has become whole, and removes what is needed no longer."""
        try:
            for saved in sealing.iterations(self._checkpoints):
                if saved.sealed:
                    continue
                state, ranks = self._plan.data_state, self._plan.ranks
                if not sealing.problem(self._checkpoints, saved.rollout, data_state=state, ranks=ranks):
                    sealing.seal(self._checkpoints, saved.rollout, data_state_too=state, ways=self._plan.ways)
                    _say(self._here, f"checkpoint {saved.path.name} is whole")
                    self._sealed = max(self._sealed, saved.rollout)
                    self._prune()
        except OSError as error:
            self._complain(f"{error.filename or self._checkpoints}: {error.strerror}; no checkpoint can be sealed")

    def _complain(self, trouble: str) -> None:
        """Once: what is tried every few seconds would fill the log."""
        if trouble != self._trouble:
            self._trouble = trouble
            _say(self._here, trouble)

    def _prune(self) -> None:
        rule = self._plan.retention
        own = [(one.rollout, str(one.path)) for one in sealing.iterations(self._checkpoints) if one.sealed]
        if keeping.overtaken(Path(rule.index), self._plan.attempt, self._plan.incarnation):
            return
        for path in map(Path, keeping.to_remove(rule, own)):
            if path.exists():
                keeping.remove(path)
                _say(self._here, f"checkpoint {path.name} removed: {rule.keep} are kept")

    def _stopped(self, act: Act) -> int:
        if act is Act.END_SAVED:
            sentence = f"Miles: stopped on request; the next incarnation goes on after rollout {self._sealed}"
            return _leave(self._here, STOPPED, sentence)
        lost = f"within {self._plan.grace_seconds:g} s; raise checkpoint.graceSeconds or lower config.saveInterval"
        return _leave(self._here, KILLED, f"Miles: saved no checkpoint {lost}")


def _say(here: Surroundings, line: str) -> None:
    here.say.write(line + "\n")
    here.say.flush()


def _leave(here: Surroundings, code: int, sentence: str) -> int:
    _say(here, sentence)
    return code
