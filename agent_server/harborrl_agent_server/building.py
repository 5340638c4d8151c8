"""Harbor's trial of a configuration, or why there is none. All of it blocks while volumes are read and written."""

import shutil
from pathlib import Path

from harbor.models.trial.config import TrialConfig
from harbor.trial.trial import Trial

from harborrl_agent_server.errors import HostError, InvalidAgentError, is_host_fault
from harborrl_agent_server.known_tasks import new_trial
from harborrl_agent_server.loggers import forget_loggers


class BadTaskError(Exception):
    """The task directory is there, but Harbor refuses it."""


class TrialExistsError(Exception):
    """Somebody has begun the trial of this session before."""


def built(config: TrialConfig) -> Trial:
    """Harbor's trial; its directory, made first, is the claim on the session. Blocks.

    Raises `TrialExistsError`, `HostError`, and what no retry heals and ends the training: `BadTaskError` and
    `InvalidAgentError`.
    """
    claim = config.trials_dir / config.trial_name
    try:
        claim.mkdir(parents=True)
    except FileExistsError as error:
        raise TrialExistsError(
            f"trial {claim.name} was begun before, by a server that runs it still or was killed; open another session"
        ) from error
    except OSError as error:
        raise HostError(f"{claim}: {error.strerror}; look at the agent server's volumes and limits") from error
    try:
        return new_trial(config)
    except InvalidAgentError:
        take_away(claim)
        raise
    except Exception as error:  # whatever Harbor raises on a task's files, the task is what it cannot use
        take_away(claim)
        said = f"{type(error).__name__}: {str(error)[:500]}"
        if is_host_fault(error):
            raise HostError(f"{said}; look at the agent server's volumes and limits") from error
        raise BadTaskError(f"Harbor refuses the task {(config.task.path or claim).name}: {said}") from error


def taken_back(trial: Trial) -> None:
    """As if it had never been built: nobody waits for it any more, and its session may be asked for again."""
    for handler in tuple(trial.logger.handlers):
        handler.close()
    take_away(trial.paths.trial_dir)


def take_away(claim: Path) -> None:
    forget_loggers(claim.name)
    shutil.rmtree(claim, ignore_errors=True)
