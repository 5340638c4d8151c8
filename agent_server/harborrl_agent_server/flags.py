"""The server's command line and its `--help`: what a person reads who has only the program."""

import argparse
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from harborrl_agent_server.flag_values import Flags, folder, number, own_agent, seconds, something

USAGE = """python -m harborrl_agent_server --trials-dir DIR [FLAG ...]
       python -m harborrl_agent_server images check|build [FLAG ...]"""

ENVIRONMENT = """environment:
  HARBOR_TASKS_DIR      the folder that holds one Harbor task a directory (required)
  HARBOR_ADMIN_SECRET   the bearer of /flush, of the dashboard and, with --guard-run, of /run; unset: none is asked for
  POD_IP                where sandboxes reach this server's model gateway

Routes, fields and outcomes: docs/agent-server.md. Flags of `images`, the images of a folder of tasks: images --help."""


class Group:
    """Flags of one heading; their help ends with their default, where there is one to tell."""

    def __init__(self, flags: Flags, title: str) -> None:
        self._group = flags.add_argument_group(title)

    def add(self, name: str, metavar: str, words: str, **how: Any) -> None:
        told = how.get("default") not in (None, "", "{}")
        text = f"{words} (default %(default)s)" if told else words
        self._group.add_argument(name, metavar=metavar, help=text, **how)

    def switch(self, name: str, words: str) -> None:
        self._group.add_argument(name, action="store_true", help=words)


def parser(agents: Sequence[str], sandboxes: Sequence[str], budgets: Mapping[str, float]) -> Flags:
    """All flags; `budgets` are their defaults, by the names of their fields."""
    flags = Flags(
        prog="harborrl_agent_server",
        usage=USAGE,
        description="Runs Harbor trials: one POST /run is one trial in a sandbox of its own.",
        epilog=ENVIRONMENT,
        formatter_class=partial(argparse.RawDescriptionHelpFormatter, max_help_position=36),
    )
    add_trials(flags)
    add_budgets(flags, budgets)
    add_agents(flags, agents)
    add_sandboxes(flags, sandboxes)
    add_server(flags)
    return flags


def add_trials(flags: Flags) -> None:
    add = Group(flags, "trials").add
    add(
        "--trials-dir",
        "DIR",
        "request, answer, trajectory and verifier of each trial (required)",
        type=folder,
        required=True,
    )
    add("--max-concurrent", "N", "trials that run at once; further ones wait in order", type=number, default=8)
    add("--start-concurrency", "N", "sandboxes that are being made at once; 0: no limit", type=number, default=16)
    add("--reward-key", "KEY", "the reward among several keys of a verifier's reward.json", type=something)
    add("--keep-trials", "N", "graded directories that stay (failed: 4 times); 0: all", type=number, default=10_000)
    add("--keep-trials-days", "D", "days that they stay (failed: 4 times); 0: for ever", type=seconds, default=0)


def add_budgets(flags: Flags, budgets: Mapping[str, float]) -> None:
    add = partial(Group(flags, "seconds that a part of a trial may take").add, metavar="S", type=seconds)
    add("--environment-start-timeout", words="start of the sandbox", default=budgets["environment_start_s"])
    add("--agent-setup-timeout", words="setup of the agent in it", default=budgets["agent_setup_s"])
    add("--agent-timeout", words="the agent; then what is there is graded", default=budgets["agent_timeout_s"])
    add("--verifier-timeout", words="grading", default=budgets["verifier_s"])
    add("--cleanup-timeout", words="end of the sandbox", default=budgets["cleanup_s"])


def add_agents(flags: Flags, agents: Sequence[str]) -> None:
    group = Group(flags, "agents and their model")
    add = group.add
    add("--agent-name", "NAME", "agent of requests that name none", default="bash")
    add("--agent-kwargs", "JSON", "its options", default="{}")
    add("--agent", "NAME=CLASS", "an agent of your own, pkg.mod:Class; again for more", type=own_agent, action="append")
    every = f"what a request may name, comma-separated; unset: {', '.join(agents)} and those of --agent"
    add("--allowed-agents", "NAMES", every)
    group.switch("--allow-oracle", "let requests run the task's own solution, to check tasks (never for training)")
    rule = (
        "where sessions may be: names, *.names, addresses, CIDRs; none: not at metadata services nor, unless sandboxes "
        "are local, on this machine"
    )
    add("--allowed-model-hosts", "HOSTS", rule, default="")
    add(
        "--gateway-port",
        "PORT",
        "where agents inside sandboxes reach the model; 0: any free one",
        type=number,
        default=0,
    )


def add_sandboxes(flags: Flags, kinds: Sequence[str]) -> None:
    group = Group(flags, "sandboxes")
    add = group.add
    add("--sandbox", "KIND", f"{', '.join(kinds)}, or pkg.mod:Class of a Harbor environment", default="kubernetes")
    add("--sandbox-namespace", "NS", "of the pods", default="harborrl-sandboxes")
    add("--sandbox-image", "IMAGE", "image of tasks that name none")
    config = "kubernetes: agentServer.sandbox of the job, resolved; docker, class: docs/agent-server.md"
    add("--sandbox-config", "JSON", config, default="{}")
    group.switch("--unsafe-ignore-network-policy", "run restricted tasks though nothing restricts them")


def add_server(flags: Flags) -> None:
    group = Group(flags, "the server itself")
    add = group.add
    add("--host", "HOST", "address to listen on; 0.0.0.0: all", type=something, default="127.0.0.1")
    add("--port", "PORT", "of /run, /flush, /health, /ready and /metrics", type=number, default=30000)
    add("--dashboard-port", "PORT", "of read-only pages about all workers' trials; 0: none", type=number, default=0)
    group.switch("--guard-run", "demand HARBOR_ADMIN_SECRET for /run too")
    add("--heartbeat", "S", "seconds between two signs of life to a waiting client; 0: none", type=seconds, default=30)
    add("--workers", "N", "processes that share port and slots; for some 100 trials each", type=number, default=1)
    add("--grace-period", "S", "seconds between SIGTERM and exit at most, unless replaced", type=seconds, default=25)
    add("--drain-period", "S", "seconds that a replaced server lets its trials run on", type=seconds, default=0)
