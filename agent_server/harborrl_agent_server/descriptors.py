"""How many files, pipes and connections a server may have open: a login shell grants 1024, which 100 trials use up."""

import resource

from harborrl_agent_server.gateway_connections import Limits

MOST = 65_536
"""More would help nobody: 5,000 trials need as many. Programs of local sandboxes inherit it, and some old ones go
through all numbers up to their limit."""

A_TRIAL = 12
"""Its client, its model, and the pipes and sockets of what runs in its sandbox: 512 trials at once had 5,316."""

ALWAYS = 256
"""Of the server itself: libraries, listeners, threads that read trial directories."""


def raise_limit() -> int:
    """Take what this process may have without asking anybody; how many that is."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    wanted = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if allowed() < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return allowed()


def allowed() -> int:
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return MOST if soft == resource.RLIM_INFINITY else soft


def too_few(granted: int, max_concurrent: int) -> str | None:
    """What is wrong with so many for so many trials; None where they fit."""
    needed = ALWAYS + Limits.fitting(granted).of_all + A_TRIAL * max_concurrent
    if granted >= needed:
        return None
    return (
        f"--max-concurrent {max_concurrent} may take {needed} file descriptors, and this process may have {granted}: "
        "trials beyond them end as ServerError; lower it, or raise the hard limit (ulimit -Hn, LimitNOFILE=, the "
        "container runtime's)"
    )
