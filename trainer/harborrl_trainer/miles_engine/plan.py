"""The plan: one JSON document that tells the driver of one incarnation all that it does (docs/contracts.md, "Miles").

Written by `harborrl_trainer.miles_plan` (Python 3.12, our image), read here in Miles' image.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from harborrl_trainer.errors import ConfigurationError

SCHEMA_VERSION = 1
NAME = "plan.json"


@dataclass(frozen=True)
class Ending:
    """What there is to do is known already: nothing is started."""

    exit_code: int
    sentence: str
    """One line: what, where, what to do."""


@dataclass(frozen=True)
class Server:
    """The agent server, as the job needs it."""

    url: str
    owned: bool
    slots: int
    """Trials that the job keeps in flight."""


@dataclass(frozen=True)
class Checks:
    """What is looked at in the container, before Miles takes minutes to load."""

    server: Server | None = None
    ports: tuple[int, ...] = ()
    """Ports of the head that Miles will listen on."""
    readable: tuple[str, ...] = ()
    """Files and directories that Miles will read."""
    nodes: int = 1
    gpus_per_node: int = 0
    commit: str = ""
    """Commit that Miles' source must be at; empty: any."""


@dataclass(frozen=True)
class Seal:
    """A checkpoint of an earlier incarnation that is whole and was not marked before that ended."""

    checkpoints: str
    """The earlier incarnation's `--save`."""
    rollout: int
    data_state: bool
    ways: Mapping[str, int] = field(default_factory=dict)
    """As in the earlier incarnation's plan."""


@dataclass(frozen=True)
class SetAside:
    """A marked checkpoint that is damaged: it loses its mark."""

    path: str
    reason: str


@dataclass(frozen=True)
class Retention:
    keep: int = 3
    index: str = ""
    """The run's index.json: an incarnation that was overtaken removes nothing."""
    older: tuple[tuple[int, str], ...] = ()
    """Rollout id and directory of each whole checkpoint that this incarnation found, oldest first."""
    loaded: str = ""
    """Directory that Miles loads from: it stays while this incarnation lives, since engines that restart read it."""
    leftovers: tuple[str, ...] = ()
    """Directories that no one can go on from; they go once a newer checkpoint is whole."""


@dataclass(frozen=True)
class Plan:
    attempt: int
    incarnation: int
    ending: Ending | None = None
    argv: tuple[str, ...] = ()
    """`argv[0]` is Miles' script, relative to its checkout."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Added to the container's own; no secrets."""
    roots: tuple[str, ...] = ()
    """Where Miles' checkout may lie, first choice first."""
    traces: str = ""
    checkpoints: str = ""
    """This incarnation's `--save`."""
    first_rollout: int = 0
    rollouts: int = 0
    """Of the whole run; 0: not known."""
    stop_request: str = ""
    """`save-and-stop`: ask Miles for a checkpoint and its end."""
    trigger: str = ""
    """`--save-trigger-sentinel`; empty where this version of Miles has none."""
    verdict: str = ""
    """File in which our rollout layer says why it gave the run up, if it did."""
    grace_seconds: float = 120.0
    tick_seconds: float = 1.0
    """Between two looks at Miles and at the request to stop."""
    checks: Checks = Checks()
    data_state: bool = True
    """Whether Miles saves its place in the data set beside each checkpoint."""
    ranks: int = 0
    """GPUs that train, each of which saves an adapter's file of its own; 0: not known."""
    ways: Mapping[str, int] = field(default_factory=dict)
    """Megatron's sizes that decide which shard of the model a rank holds; they go into each seal."""
    tells_trained: bool = True
    """Whether Miles leaves a train_data file for each rollout that it has trained on."""
    seals: tuple[Seal, ...] = ()
    set_aside: tuple[SetAside, ...] = ()
    retention: Retention = Retention()
    notices: tuple[str, ...] = ()
    """What this run lacks or does otherwise than was written, one sentence each."""


def dump(plan: Plan) -> str:
    return json.dumps({"schemaVersion": SCHEMA_VERSION, **asdict(plan)}, indent=1) + "\n"


def load(path: Path) -> Plan:
    """Raises ConfigurationError for anything that is no plan of this version."""
    try:
        document = json.loads(path.read_bytes())
        return _plan(document)
    except OSError as error:
        raise ConfigurationError(
            f"{path}: cannot read the plan ({error.strerror}); mount the checkpoints volume in every trainer pod"
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigurationError(
            f"{path}: no plan of this version ({error}); bring the operator and its trainer image to the same version"
        ) from error


def _plan(document: dict[str, Any]) -> Plan:
    version = document.pop("schemaVersion")
    if version != SCHEMA_VERSION:
        raise ValueError(f"schemaVersion is {version}, not {SCHEMA_VERSION}")
    ending, checks, retention = document["ending"], document["checks"], document["retention"]
    server = checks["server"]
    return Plan(
        **{
            **document,
            "ending": Ending(**ending) if ending else None,
            "checks": Checks(
                **{
                    **_tuples(checks, ["ports", "readable"]),
                    "server": Server(**server) if server else None,
                }
            ),
            "seals": tuple(Seal(**each) for each in document["seals"]),
            "set_aside": tuple(SetAside(**each) for each in document["set_aside"]),
            "retention": Retention(
                **{
                    **_tuples(retention, ["leftovers"]),
                    "older": tuple((int(rollout), str(path)) for rollout, path in retention["older"]),
                }
            ),
            **{name: tuple(document[name]) for name in ("argv", "roots", "notices")},
        }
    )


def _tuples(values: Mapping[str, Any], names: list[str]) -> dict[str, Any]:
    return {**values, **{name: tuple(values[name]) for name in names}}
