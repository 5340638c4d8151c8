"""A sandbox of Linux namespaces on this machine, for tests and development without a cluster. Not a security boundary.

Its own mounts (a throw-away layer over this machine's files), processes, host name; no network if the task wants none.
Needs root. Everything dies with its first process, and that dies with this server.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import tempfile
import time
from functools import cached_property
from pathlib import Path
from typing import IO, Any, override

from harbor.environments.capabilities import EnvironmentCapabilities
from harbor.models.trial.config import EnvironmentConfig

from harborrl_agent_server.errors import (
    SandboxLostError,
    SandboxStartError,
    SandboxTransportError,
    SandboxUnusableError,
    StartupError,
)
from harborrl_agent_server.sandboxes import commands
from harborrl_agent_server.sandboxes.joining import JoiningSandbox
from harborrl_agent_server.sandboxes.once import Once
from harborrl_agent_server.sandboxes.processes import Spawner, SpawnError
from harborrl_agent_server.sandboxes.spawner import AUTOGROUP, NICENESS, SESSION_NICENESS
from harborrl_agent_server.sandboxes.streams import Sink
from harborrl_agent_server.scope import Standing

PROGRAMS = ("nice", "unshare", "nsenter", "setpriv", "mount", "pivot_root")

ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
}

DEVICES = "null zero full random urandom tty fd stdin stdout stderr"
"""Of this machine's; its disks are not among them, and what a sandbox does to its own `/dev` stays there."""

BOOT = f"""
set -e
(echo {SESSION_NICENESS} >{AUTOGROUP}) 2>/dev/null || :
mount -t tmpfs -o size=$2,mode=755 harborrl "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay harborrl -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
cd "$1/root"
mount -t proc proc proc
devices=
for name in {DEVICES}; do [ ! -e "/dev/$name" ] || devices="$devices /dev/$name"; done
cp -a --remove-destination $devices dev
mkdir -p -m 1777 dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=666,mode=620 pts dev/pts
ln -sf pts/ptmx dev
mount -t tmpfs -o mode=1777 tmp tmp
echo sandbox >proc/sys/kernel/hostname
pivot_root . .
umount -l .
cd /
said=ready
if (eval "$3") >&2; then said=prepared; fi
exec /bin/sh -c '{commands.IDLE.replace("'", "'" + chr(92) + "''")}' harborrl $said
"""
"""$1: an empty directory; $2: how much may be written; $3: what prepares it.

The upper layer is in memory: overlay cannot lie on overlay.
"""


PREFIX = "harborrl-sandbox-"
"""Of the folder on which a sandbox mounts what it writes, there until that is done."""

YOUNG_SECONDS = 600.0
"""A folder of less may be that of a sandbox which another server makes at this moment."""

END_SECONDS = 30.0
"""For a process 1 that ends to be seen to be gone, on a machine that others keep busy."""

EXITING = 0x4
"""PF_EXITING of Linux' `include/linux/sched.h`."""

HOLDER = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--uts", "--ipc", "--pid"]

FORKED = ["--fork", "--kill-child", "--propagation", "private"]


class LocalSandbox(JoiningSandbox):
    """One trial's namespaces; `stream` enters them."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._base: Path | None = None
        self._holder: asyncio.subprocess.Process | None = None
        self._first_pid = 0
        self._is_prepared = False
        self._own_spawner: Spawner | None = None

    @staticmethod
    @override
    def type() -> str:
        return "harborrl-local"

    @property
    @override
    def capabilities(self) -> EnvironmentCapabilities:
        return EnvironmentCapabilities(disable_internet=True)

    @override
    async def boot(self) -> None:
        self._base = Path(tempfile.mkdtemp(prefix=PREFIX))
        size = f"{self.task_env_config.storage_mb or 1024}m"
        words = ["nice", "-n", str(NICENESS), *HOLDER, *(["--net"] if self._network_disabled else []), *FORKED]
        self._holder = await asyncio.create_subprocess_exec(
            *(*words, commands.SHELL, "-c", BOOT, "harborrl", str(self._base), size, self.folders()),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=ENVIRONMENT,
            start_new_session=True,
        )
        if self._holder.stdout is None or self._holder.stderr is None:
            raise SandboxStartError("NamespacesRefused", "the sandbox process has no pipes")
        said_first = await self._holder.stdout.readline()
        self._is_prepared = said_first == b"prepared\n"
        if not self._is_prepared and said_first != b"ready\n":
            said = (await self._holder.stderr.read(4096)).decode(errors="replace").strip()
            raise SandboxStartError(
                "NamespacesRefused", f"{said or 'no reason given'}; the local sandbox needs root and Linux namespaces"
            )
        children = Path(f"/proc/{self._holder.pid}/task/{self._holder.pid}/children").read_text()  # noqa: ASYNC240 - procfs
        self._first_pid = int(children.split()[0])
        self._base.rmdir()  # what is mounted there is the sandbox's alone, and a killed server would leave the folder

    @override
    async def prepare(self) -> None:
        """Again, where it could not be done: to hear why."""
        if not self._is_prepared:
            await super().prepare()

    @override
    async def stream(self, argv: list[str], *, stdin: IO[bytes] | None, stdout: Sink, stderr: Sink) -> int:
        if self._holder is None or self._holder.returncode is not None:
            raise ended_by(None if self._holder is None else self._holder.returncode)
        enter = [
            "nsenter",
            "--target",
            str(self._first_pid),
            "--mount",
            "--uts",
            "--ipc",
            "--pid",
            "--net",
            "--root",
            "--wd",
        ]
        try:
            code = await self._spawner().run([*enter, *argv], stdin=stdin, stdout=stdout, stderr=stderr)
        except SpawnError as error:
            raise SandboxTransportError(f"the way into the sandbox is gone: {error}") from error
        if code and await self._is_at_its_end(code):
            raise ended_by(self._holder.returncode)
        # nsenter ends by the signal that ended its command, and nobody inside can reach nsenter itself.
        return code if code >= 0 else 128 - code

    async def _is_at_its_end(self, code: int) -> bool:
        """Commands are killed with the sandbox, by the kernel, while process 1 ends and before that is known here."""
        if code == -signal.SIGKILL and is_ending(self._first_pid):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(END_SECONDS):
                    await self.holder_ended()
        return self._holder is not None and self._holder.returncode is not None

    def _spawner(self) -> Spawner:
        """The server's; one of its own where the class was chosen by its import path."""
        if isinstance(self.scope.provider, LocalProvider):
            return self.scope.provider.spawner
        self._own_spawner = self._own_spawner or Spawner(ENVIRONMENT)
        return self._own_spawner

    async def holder_ended(self) -> None:
        """Returns when the sandbox's first process is gone."""
        if self._holder is not None:
            await self._holder.wait()

    @override
    async def destroy(self) -> None:
        if self._holder is not None and self._holder.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._holder.pid, 9)
            await self._holder.wait()
        if self._own_spawner is not None:
            await self._own_spawner.close()
        if self._base is not None:
            shutil.rmtree(self._base, ignore_errors=True)


def sweep(folder: Path, now: float) -> None:
    """Folders of sandboxes that were being made when their server was killed: nothing is in them."""
    for path in folder.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # somebody else's, or gone meanwhile
            if now - path.stat().st_mtime > YOUNG_SECONDS:
                path.rmdir()


def is_ending(pid: int) -> bool:
    try:
        flags = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[6]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return bool(int(flags) & EXITING)


def ended_by(code: int | None) -> Exception:
    """Process 1 ends with 0 on a signal from inside and on nothing else (decision 0171)."""
    if code == 0:
        return SandboxUnusableError("the sandbox was ended by its own processes (SIGTERM to process 1)")
    return SandboxLostError("the sandbox's first process is gone; the trial has to run again")


class LocalProvider:
    """Makes local sandboxes; refuses at start-up where they are not possible."""

    @cached_property
    def _once(self) -> Once:
        return Once()

    @cached_property
    def spawner(self) -> Spawner:
        return Spawner(ENVIRONMENT)

    async def open(self) -> None:
        with self._once.opening():
            await self._open()

    async def _open(self) -> None:
        sweep(Path(tempfile.gettempdir()), time.time())
        missing = [program for program in PROGRAMS if shutil.which(program) is None]
        if missing:
            raise StartupError(
                f"--sandbox local needs {', '.join(missing)} on PATH: install util-linux, or use --sandbox kubernetes"
            )
        probe = await asyncio.create_subprocess_exec(
            *("unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "true"),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        _, said = await probe.communicate()
        if probe.returncode:
            reason = said.decode(errors="replace").strip()
            raise StartupError(
                f"--sandbox local is refused here ({reason}): run as root with namespaces, or use --sandbox kubernetes"
            )

    async def close(self) -> None:
        """Each sandbox ends with its trial."""
        await self.spawner.close()
        self._once.closed()

    async def standing(self) -> Standing:
        """Nobody starts another version of a server without a cluster."""
        return Standing.ALONE

    def environment(self) -> EnvironmentConfig:
        return EnvironmentConfig(import_path=f"{LocalSandbox.__module__}:{LocalSandbox.__qualname__}")
