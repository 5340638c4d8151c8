"""What the server was started with: flags and environment (docs/contracts.md), checked before anything listens."""

import argparse
import errno
import os
import socket
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from harborrl_agent_server.endpoints import HostRules
from harborrl_agent_server.errors import StartupError
from harborrl_agent_server.flag_values import IMPORT_PATH
from harborrl_agent_server.flags import parser

MOST_WORKERS = 64
"""As in the job's `agentServer.workers`; each is a process of some 120 MiB."""

LAST_PORT = 65535

LONGEST_LABEL = 63

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Of a volume: no reason not to start, for a server that runs makes room by what it keeps."""

SANDBOX_KINDS = ("kubernetes", "docker", "local")

SEEN_BY_SANDBOXES = {"docker": "host.docker.internal"}
"""This server's own address inside them, where it runs in no pod."""

AGENTS = ("bash", "terminus-2", "mini-swe-agent", "nop")
"""What a request may name; `oracle` besides, with `--allow-oracle`."""


@dataclass(frozen=True)
class Budgets:
    """Seconds that each part of a trial may take at most."""

    environment_start_s: float = 600
    agent_setup_s: float = 360
    agent_timeout_s: float = 5400
    verifier_s: float = 600
    cleanup_s: float = 60

    def total(self) -> float:
        """Longest life of a trial after it got its slot; the client's ceiling must be above it.

        The sandbox that a verifier may have for itself starts in what is left over of the others (`spending`).
        """
        return self.environment_start_s + self.agent_setup_s + self.agent_timeout_s + self.verifier_s + self.cleanup_s


@dataclass(frozen=True)
class JobIdentity:
    """The HarborRLJob this server belongs to; empty strings when it serves none."""

    namespace: str = ""
    name: str = ""
    uid: str = ""

    def __bool__(self) -> bool:
        return bool(self.namespace and self.name and self.uid)


WORKER, GATEWAY = "HARBORRL_WORKER", "HARBORRL_WORKER_GATEWAY"
"""What a dispatcher tells its workers: `INDEX:FOLDER`, and where sandboxes find the gateway."""


@dataclass(frozen=True)
class Worker:
    """A place among the server processes of one pod; its sockets are in a folder that only they can enter."""

    index: int
    folder: Path
    gateway: str = ""

    @property
    def socket(self) -> Path:
        return self.folder / f"worker-{self.index}"

    @property
    def gateway_socket(self) -> Path:
        return self.folder / f"gateway-{self.index}"

    @property
    def lending_socket(self) -> Path:
        return self.folder / "slots"


@dataclass(frozen=True)
class Settings:
    tasks_dir: Path
    trials_dir: Path
    host: str = "127.0.0.1"
    port: int = 30000
    dashboard_port: int = 0
    """0: no dashboard."""
    max_concurrent: int = 8
    start_concurrency: int = 16
    """Sandboxes that are being made at once; the API server, nodes and registries are slow for more. 0: no limit."""
    budgets: Budgets = field(default_factory=Budgets)
    agent_name: str = "bash"
    agent_kwargs: dict[str, Any] = field(default_factory=dict)
    allowed_agents: tuple[str, ...] = AGENTS
    """Which agents a request may name."""
    own_agents: Mapping[str, str] = field(default_factory=dict)
    """Further ones, by name: `pkg.mod:Class` of a Harbor agent."""
    allowed_model_hosts: tuple[str, ...] = ()
    """Where sessions may be: names, `*.names`, addresses, CIDRs; empty: anywhere but metadata services."""
    workers: int = 1
    """Server processes of this pod behind its one port."""
    worker: Worker | None = None
    """The place of this very process among them; None: it is a whole server, or their dispatcher."""
    gateway_port: int = 0
    """Where agents inside sandboxes reach the model; 0: any free port, which no NetworkPolicy can name."""
    gateway_host: str = "127.0.0.1"
    """This server's address as sandboxes see it."""
    allow_oracle: bool = False
    """The oracle runs the task's own solution: a training row that names it would earn reward 1."""
    reward_key: str | None = None
    """Which key of a verifier that reports several is the reward; `reward` and a single key need no choice."""
    sandbox: str = "kubernetes"
    sandbox_namespace: str = "harborrl-sandboxes"
    sandbox_image: str | None = None
    sandbox_config: dict[str, Any] = field(default_factory=dict)
    unsafe_ignore_network_policy: bool = False
    """Whether tasks with a restricted network run where nothing restricts them."""
    grace_s: float = 25
    """From SIGTERM to the end of a server that cancels its trials; below the pod's termination grace period."""
    drain_s: float = 0
    """How long a server that a newer version replaces lets its trials run on before it cancels the rest."""
    deployment: str = ""
    """The Deployment that this pod belongs to, in the job's namespace; empty: none, so nothing replaces this server."""
    heartbeat_s: float = 30
    """Between two spaces that keep the connection of a waiting `/run` alive; 0: none are sent."""
    session_look_s: float = 10
    """Between two looks whether a session server is still the one that its trials' sessions were opened on."""
    read_s: float = 60
    """For one task's files to be read; a volume that takes longer hangs, and its trials are infrastructure's."""
    reap_interval_s: float = 15
    """Between two tries to remove what is left of trials that did not end."""
    keep_trials: int = 10_000
    """Graded trial directories that stay, some 0.1 to 10 MB each; failed ones four times as many. 0: all."""
    keep_trials_days: float = 0
    """Days that they stay at most, failed ones four times as long. 0: for ever."""
    admin_secret: str = field(default="", repr=False)
    guard_run: bool = False
    """Whether `/run` demands the secret too: Miles' own client sends it with `/flush` alone."""
    job: JobIdentity = field(default_factory=JobIdentity)
    pod_name: str = "agent-server"

    @property
    def server_name(self) -> str:
        """Whose the sandboxes are: a worker that is started again sweeps its own predecessor's and no neighbour's."""
        mark = "" if self.worker is None else f"-w{self.worker.index}"
        return self.pod_name[: LONGEST_LABEL - len(mark)] + mark if mark else self.pod_name


def settings_from(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> Settings:
    """Settings of a command line and an environment.

    Raises `StartupError` with one line for the first thing that is wrong.
    """
    args = parser(AGENTS, SANDBOX_KINDS, vars(Budgets())).parse_args(argv)
    tasks = environ.get("HARBOR_TASKS_DIR", "")
    if not tasks:
        raise StartupError("HARBOR_TASKS_DIR is not set: point it at the folder that holds one Harbor task a directory")
    same_name = {item.name: getattr(args, item.name) for item in fields(Settings) if hasattr(args, item.name)}
    further: dict[str, Any] = {
        "tasks_dir": Path(tasks),
        "budgets": budgets_from(args),
        "agent_kwargs": json_object("--agent-kwargs", args.agent_kwargs),
        "sandbox_config": json_object("--sandbox-config", args.sandbox_config),
        "grace_s": args.grace_period,
        "drain_s": args.drain_period,
        "heartbeat_s": args.heartbeat,
        "deployment": environ.get("HARBORRL_DEPLOYMENT", ""),
        "admin_secret": environ.get("HARBOR_ADMIN_SECRET", ""),
        "job": JobIdentity(*(environ.get(f"HARBORRL_JOB_{part}", "") for part in ("NAMESPACE", "NAME", "UID"))),
        "pod_name": environ.get("POD_NAME") or socket.gethostname(),
        "worker": worker_from(environ),
    }
    settings = Settings(**same_name | further | gateway_from(args, environ))
    check(settings)
    return settings


def budgets_from(args: argparse.Namespace) -> Budgets:
    return Budgets(
        environment_start_s=args.environment_start_timeout,
        agent_setup_s=args.agent_setup_timeout,
        agent_timeout_s=args.agent_timeout,
        verifier_s=args.verifier_timeout,
        cleanup_s=args.cleanup_timeout,
    )


def check(settings: Settings) -> None:
    """Raises `StartupError` for the first thing that is wrong."""
    for fault in (*choices(settings), *agents(settings), *numbers(settings)):
        raise StartupError(fault)
    HostRules.parse(settings.allowed_model_hosts, loopback=True)
    try:
        settings.trials_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=settings.trials_dir):
            pass
    except OSError as error:
        if error.errno not in FULL:
            raise StartupError(
                f"--trials-dir {settings.trials_dir} cannot be written: {error.strerror}; "
                "mount a volume there that this server's user may write to"
            ) from error


def choices(settings: Settings) -> Iterator[str]:
    if settings.sandbox not in SANDBOX_KINDS and not IMPORT_PATH.fullmatch(settings.sandbox):
        yield f"--sandbox {settings.sandbox}: unknown kind; one of {', '.join(SANDBOX_KINDS)}, or pkg.mod:Class"
    if not settings.tasks_dir.is_dir():
        yield f"HARBOR_TASKS_DIR={settings.tasks_dir} is not a directory: mount the tasks volume or correct the path"
    if settings.sandbox == "local" and settings.sandbox_config:
        yield "--sandbox-config: --sandbox local has nothing to configure; leave it out"
    if not is_header(settings.admin_secret):
        yield "HARBOR_ADMIN_SECRET holds a blank, a line end or no ASCII, which no header carries; write it anew"
    if settings.guard_run and not settings.admin_secret:
        yield "--guard-run: there is no secret to demand; set HARBOR_ADMIN_SECRET"


def agents(settings: Settings) -> Iterator[str]:
    taken = [name for name in settings.own_agents if name in (*AGENTS, "oracle")]
    if taken:
        yield f"--agent {taken[0]}: that is an agent of the server's; choose another name"
    every = (*AGENTS, *settings.own_agents)
    unknown = [name for name in settings.allowed_agents if name not in every]
    if unknown or not settings.allowed_agents:
        yield f"--allowed-agents {', '.join(unknown) or '(none)'}: some of {', '.join(every)}"
    known = (*every, "oracle") if settings.allow_oracle else every
    if settings.agent_name not in known:
        yield f"--agent-name {settings.agent_name!r}: one of {', '.join(known)}"
    elif settings.agent_name not in (*settings.allowed_agents, "oracle"):
        yield f"--agent-name {settings.agent_name}: --allowed-agents leaves it out; add it there, or name another"


def is_header(secret: str) -> bool:
    """Whether every client can send it as it is, and every server find it again."""
    return secret.isascii() and secret.isprintable() and secret == secret.strip()


def numbers(settings: Settings) -> Iterator[str]:
    if settings.max_concurrent < 1:
        yield f"--max-concurrent {settings.max_concurrent}: at least 1"
    if settings.start_concurrency < 0:
        yield f"--start-concurrency {settings.start_concurrency}: 1 or more, or 0 for no limit"
    if not 1 <= settings.workers <= MOST_WORKERS:
        yield f"--workers {settings.workers}: 1 to {MOST_WORKERS}"
    ports = {
        "--port": settings.port,
        "--dashboard-port": settings.dashboard_port,
        "--gateway-port": settings.gateway_port,
    }
    taken = [name for name, port in ports.items() if port and list(ports.values()).count(port) > 1]
    if taken:
        yield f"{' and '.join(taken)} are the same port, {ports[taken[0]]}; choose another"
    wrong = [name for name, port in ports.items() if not 0 <= port <= LAST_PORT]
    if wrong:
        yield f"{wrong[0]} {ports[wrong[0]]}: a port is 0 to {LAST_PORT}"
    short = [name for name, seconds in vars(settings.budgets).items() if seconds <= 0]
    if short:
        yield f"time-outs must be positive seconds: {', '.join(short)}"
    if min(settings.keep_trials, settings.keep_trials_days) < 0:
        yield "--keep-trials and --keep-trials-days: 0 (no limit) or more"
    yield from times(settings)


def times(settings: Settings) -> Iterator[str]:
    if min(settings.grace_s, settings.drain_s) < 0:
        yield "--grace-period and --drain-period: 0 or more seconds"
    if settings.heartbeat_s < 0:
        yield f"--heartbeat {settings.heartbeat_s:g}: seconds, or 0 for none"


def gateway_from(args: argparse.Namespace, environ: Mapping[str, str]) -> dict[str, Any]:
    """What decides which agents run and how they reach their model."""
    named = args.agent or []
    own = dict(named)
    if len(own) < len(named):
        raise StartupError(f"--agent: of {', '.join(name for name, _ in named)} one is named twice; choose other names")
    return {
        "own_agents": own,
        "allowed_agents": (*AGENTS, *own) if args.allowed_agents is None else names(args.allowed_agents),
        "allowed_model_hosts": names(args.allowed_model_hosts),
        "gateway_port": args.gateway_port,
        "gateway_host": environ.get("POD_IP") or SEEN_BY_SANDBOXES.get(args.sandbox, "127.0.0.1"),
    }


def worker_from(environ: Mapping[str, str]) -> Worker | None:
    index, _, folder = environ.get(WORKER, "").partition(":")
    return Worker(int(index), Path(folder), environ.get(GATEWAY, "")) if folder else None


def names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def json_object(flag: str, text: str) -> dict[str, Any]:
    try:
        value = from_json(text, allow_inf_nan=False)
    except ValueError as error:
        raise StartupError(f"{flag} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise StartupError(f"{flag} must be a JSON object, not {type(value).__name__}")
    return value
