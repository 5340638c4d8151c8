"""One quickstart task played with given commands in throw-away Linux namespaces, graded by the task's own verifier.

Needs root or user namespaces. Not a security boundary: files, processes and network are separate, nothing else is.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

COMMAND_SECONDS = 10

BOOT = """
set -e
mount -t tmpfs -o mode=755 none "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay none -o "lowerdir=${3:-/},upperdir=$1/upper,workdir=$1/work" "$1/root"
cd "$1/root"
mkdir -p proc dev tmp app logs/verifier tests exchange
mount -t proc none proc
touch dev/null
mount --bind /dev/null dev/null
mount -t tmpfs -o mode=1777 none tmp
mount --bind "$2" exchange
exec chroot . /bin/sh /exchange/play
"""

PLAY = f"""
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin; export PATH
HOME=/root; export HOME
rm -rf /app /tests /logs; mkdir -p /app /logs/verifier
cp -R /exchange/environment/. /app/
cd /app
for command in /exchange/commands/*; do
    [ -f "$command" ] || continue
    timeout {COMMAND_SECONDS} /bin/sh -c "$(cat "$command")" < /dev/null > "$command.out" 2>&1
    echo $? > "$command.code"
done
[ -d /exchange/tests ] || exit 0
cp -R /exchange/tests /tests
cd /
timeout {COMMAND_SECONDS} /bin/sh /tests/test.sh < /dev/null > /exchange/verifier.out 2>&1
cp /logs/verifier/reward.txt /exchange/reward.txt
"""


@dataclass(frozen=True)
class Played:
    reward: float | None
    """None when the verifier was not asked."""
    said: str
    """The verifier's output."""
    code: int | None
    """Exit code of the last command, None when there was none."""
    output: str
    """Output of the last command."""


def play(task: Path, commands: Sequence[str], *, grade: bool = True, root: Path | None = None) -> Played:
    """Run `commands` one after the other in a fresh sandbox of `task` and grade what they left behind.

    `root` is the file system to run on, default this machine's own.
    """
    with tempfile.TemporaryDirectory() as folder:
        exchange, mount = Path(folder) / "exchange", Path(folder) / "mount"
        mount.mkdir()
        (exchange / "commands").mkdir(parents=True)
        shutil.copytree(task / "environment", exchange / "environment")
        if grade:
            shutil.copytree(task / "tests", exchange / "tests")
        (exchange / "play").write_text(PLAY)
        names = [exchange / "commands" / f"{number:03}" for number in range(len(commands))]
        for path, command in zip(names, commands, strict=True):
            path.write_text(command)
        _unshare(mount, exchange, root)
        last = names[-1] if names else None
        return Played(
            reward=float((exchange / "reward.txt").read_text()) if grade else None,
            said=(exchange / "verifier.out").read_text().strip() if grade else "",
            code=int(last.with_suffix(".code").read_text()) if last else None,
            output=last.with_suffix(".out").read_text(errors="replace") if last else "",
        )


def _unshare(mount: Path, exchange: Path, root: Path | None) -> None:
    user = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    argv = [
        "unshare",
        *user,
        "--mount",
        "--pid",
        "--net",
        "--ipc",
        "--uts",
        "--fork",
        "--kill-child",
        "--propagation",
        "private",
    ]
    done = subprocess.run(
        [*argv, "/bin/sh", "-c", BOOT, "sandbox", str(mount), str(exchange), str(root or "")],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"the sandbox ended with {done.returncode}: {done.stderr.strip()[-500:]}")
