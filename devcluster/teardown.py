"""The steps of `down` for our own cluster. Each may find nothing, half, or all of what it removes."""

import shutil
import time
from contextlib import suppress
from pathlib import Path

from devcluster import host
from devcluster.errors import CommandError, UnsuitableHostError
from devcluster.policyrules import remove_policy_rules
from devcluster.processes import Supervisor
from devcluster.settings import Settings
from devcluster.shell import run

STOP_ORDER = (
    "kube-router",
    "kube-proxy",
    "kubelet",
    "kube-scheduler",
    "kube-controller-manager",
    "containerd",
    "kube-apiserver",
    "etcd",
)
"""The kubelet ends before the pods do, or it would start them again."""


def stop_programs(settings: Settings, supervisor: Supervisor, cri: Path) -> None:
    for name in STOP_ORDER:
        if name == "containerd" and supervisor.record(name) is not None:
            # The runtime frees addresses and mounts too; what it cannot end is killed by remove_traces.
            with suppress(CommandError):
                run([cri, settings.containerd_socket, "stop-pods"], timeout=120)
        supervisor.stop(name)


def remove_traces(settings: Settings) -> None:
    """Leaves the machine as `up` found it. The state folder goes last: it is what says that work is left."""
    host.kill_pods()
    host.kill_shims(settings)
    host.remove_shim_sockets(settings)
    host.unmount_below(settings.state)
    host.remove_network()
    remove_policy_rules()
    host.remove_leftover_files(settings)
    host.restore_sysctls(settings)
    _remove_cgroups()
    doomed = doomed_state(settings)
    settings.state.rename(doomed)
    shutil.rmtree(doomed)


def doomed_state(settings: Settings) -> Path:
    """Where the state folder is while it is deleted: half a folder of keys and data must not be taken for a cluster."""
    return settings.state.with_name(f"{settings.state.name}.removing")


def finish_removal(settings: Settings) -> None:
    """Completes a deletion that was cut short."""
    if doomed_state(settings).exists():
        shutil.rmtree(doomed_state(settings))


def _remove_cgroups(seconds: float = 10.0) -> None:
    """A killed process leaves its cgroup a moment after its end."""
    deadline = time.monotonic() + seconds
    while remaining := host.remove_cgroups():
        if time.monotonic() > deadline:
            raise UnsuitableHostError(f"{remaining[0]} still holds a process after {seconds:.0f} s; run `down` again.")
        time.sleep(0.1)
