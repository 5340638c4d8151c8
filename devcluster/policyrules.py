"""Takes back what kube-router wrote: iptables chains and ipsets, known by their prefixes."""

import re
from collections.abc import Iterable

from devcluster.errors import CommandError
from devcluster.shell import run

CHAIN_PREFIXES = ("KUBE-ROUTER-", "KUBE-NWPLCY-", "KUBE-POD-FW-")
SET_PREFIXES = ("KUBE-SRC-", "KUBE-DST-", "kube-router-", "inet6:KUBE-SRC-", "inet6:KUBE-DST-", "inet6:kube-router-")


def removal_script(saved: str) -> str:
    """An iptables-restore script that removes kube-router's chains and the jumps to them from a saved rule set."""
    script: list[str] = []
    for table, lines in _tables(saved):
        chains = [line.split()[0][1:] for line in lines if line.startswith(":") and _is_ours(line.split()[0][1:])]
        jumps = [line for line in lines if line.startswith("-A ") and _jumps_to_ours(line)]
        if chains or jumps:
            script += [
                f"*{table}",
                *(f":{chain} - [0:0]" for chain in chains),
                *(f"-D{line[2:]}" for line in jumps),
                *(f"-X {chain}" for chain in chains),
                "COMMIT",
            ]
    return "\n".join(script) + "\n" if script else ""


def _tables(saved: str) -> Iterable[tuple[str, list[str]]]:
    for match in re.finditer(r"^\*(\w+)\n(.*?)^COMMIT$", saved, re.MULTILINE | re.DOTALL):
        yield match[1], match[2].splitlines()


def _is_ours(chain: str) -> bool:
    return chain.startswith(CHAIN_PREFIXES)


def _jumps_to_ours(rule: str) -> bool:
    """A rule of a chain that is not ours with a target that is; rules inside our chains go with them."""
    target = re.search(r"(?:-j|-g) (\S+)", rule)
    return not _is_ours(rule.split()[1]) and target is not None and _is_ours(target[1])


def our_sets(listed: str) -> list[str]:
    """Names of kube-router's ipsets; sets of sets first, since a member cannot go before its holder."""
    names = [name for name in listed.split() if name.startswith(SET_PREFIXES)]
    return sorted(names, key=lambda name: "kube-router-" not in name)


def remove_policy_rules() -> None:
    for save, restore in (("iptables-save", "iptables-restore"), ("ip6tables-save", "ip6tables-restore")):
        if script := removal_script(run([save])):
            run([restore, "--noflush"], stdin=script)
    try:
        listed = run(["ipset", "list", "-name"])
    except CommandError:
        return  # The kernel has no ipset support, so kube-router made none.
    for name in our_sets(listed):
        run(["ipset", "destroy", name])
