"""Shell that runs inside a sandbox: pure text, nothing but /bin/sh taken for granted.

A command leads its own session and leaves its process id in a file, because the end of a connection does not end a
process: kubelet lets it run on (kubernetes/kubernetes#89031). The wrapper waits outside and passes the exit code on.
"""

import shlex
from collections.abc import Mapping, Sequence

SHELL = "/bin/sh"

LONGEST_ARGUMENT = 64 * 1024
"""Bytes. Linux refuses an argument above 128 KiB, and commands reach a pod in a URL: longer ones go as a file."""

AS_NICE = (
    '{ read -r _ _ harborrl </proc/$PPID/autogroup && [ "$harborrl" != 0 ] && '
    'echo "$harborrl" >/proc/self/autogroup; } 2>/dev/null; '
)
"""A new session is as nice as that of its parent (sched(7), "The autogroup feature"): Linux gives it 0."""

SUPERVISE = (
    "exec 3<&0; f=$1; shift; "
    "if command -v setsid >/dev/null 2>&1; then s=setsid; else s=; fi; "
    f"""$s /bin/sh -c 'echo $$ >"$0"; [ ! -e "$0.cut" ] || exit 137; {AS_NICE}exec "$@"' "$f" "$@" <&3 3<&- & """
    'wait $!; r=$?; rm -f "$f" "$f.cut"; exit $r'
)
"""$1: file for the process id; the rest: the command. In the background setsid never forks and hides the exit code."""

KILL = (
    'true >"$1.cut"; read -r p <"$1" || exit 0; c=; '
    '{ read -r s <"/proc/$p/comm" && [ "$s" = su ] && read -r c <"/proc/$p/task/$p/children"; } 2>/dev/null; '
    'kill -9 -"$p" 2>/dev/null || kill -9 "$p" 2>/dev/null; '
    'for p in $c; do kill -9 -"$p" 2>/dev/null; done; rm -f "$1" "$1.cut"'
)
"""A command that has not begun, as on a busy machine, finds that it was cut. dash wants `-9`, not `-KILL --`.
util-linux' `su` begins another session for its command."""

VERDICT = "/logs/verifier"

REWARDS = (f"{VERDICT}/reward.txt", f"{VERDICT}/reward.json")

PACK = 'export LC_ALL=C; exec tar -cf - -C "$1" .'
"""$1: a folder."""

PACK_REWARDS = (
    'export LC_ALL=C; cd "$1" || exit 1; set --; '
    'for f in reward.txt reward.json; do [ -f "$f" ] && set -- "$@" "./$f"; done; exec tar -cf - "$@"'
)
"""As PACK, of what Harbor's verifier reads and of nothing else."""

CLEARED = (
    "{ [ -e /tests ] || [ -L /tests ]; } && rm -rf /tests; "
    f'for f in {" ".join(REWARDS)}; do [ -f "$f" ] && {{ true >"$f"; }} 2>/dev/null; done; :'
)
"""Drops what was planted for the tests. Rewards are emptied by the shell itself: an agent may have seen to it that
Harbor's `rm` leaves them. Times of files would tell less: busybox compares whole seconds, and a verifier takes a part
of one. A pipe, which would hold the shell, stays."""

REWARDS_REMOVED = (
    f'for f in {" ".join(REWARDS)}; do {{ [ -e "$f" ] || [ -L "$f" ]; }} || continue; rm -f -- "$f" || exit 1; done'
)
"""As Harbor's verifier does it, and without a process where there is nothing."""

QUIESCE = f"kill -9 -1 2>/dev/null; {CLEARED}"
"""Ends every process except process 1 and this shell, and drops what was planted."""

SURVEY = (
    """for p in /proc/[0-9]*; do { read -r s <"$p/stat"; } 2>/dev/null || continue; """
    """set -- ${s##*) }; echo "${p#/proc/}:${20}"; done"""
)
"""The processes there are, by number and start time: a number comes again."""

QUIESCE_OTHERS = (
    """k=" $1 "; a=" "; q=$$; while [ "$q" -gt 0 ]; do a="$a$q "; read -r s <"/proc/$q/stat" || break; """
    """set -- ${s##*) }; q=$2; done; """
    """i=0; while [ $i -lt 20 ]; do n=0; for p in /proc/[0-9]*; do """
    """{ read -r s <"$p/stat"; } 2>/dev/null || continue; set -- ${s##*) }; [ "$1" = Z ] && continue; """
    """q=${p#/proc/}; case "$a" in *" $q "*) continue;; esac; case "$k" in *" $q:${20} "*) continue;; esac; """
    """kill -9 "$q" 2>/dev/null; n=1; done; [ $n = 0 ] && break; i=$((i+1)); done; """
    f"{CLEARED}"
)
"""As QUIESCE, where the sandbox has processes that are not the agent's: $1 are those that stay, as SURVEY tells them.
Its own ancestors stay too: they carry this command."""

IDLE = (
    "trap 'exit 0' TERM INT; f=/.harborrl-idle; i() { sleep 3600; }; rm -f $f; "
    "if mkfifo $f 2>/dev/null; then exec 9<>$f; rm -f $f; i() { read -r x <&9; }; fi; "
    '[ -z "$1" ] || echo "$1"; while :; do i & wait $!; done'
)
"""Process 1 of a sandbox: ends at once on TERM, outlives QUIESCE, reaps orphans. `sleep infinity` does none of it.

It waits in a copy of itself for a pipe that it holds open: QUIESCE ends that copy too, and a program that were started
then, `sleep` say, might be the agent's, and write the reward while the verifier works. $1, if anything, is said when
that stands.
"""


NEEDS = (
    "the image needs /bin/sh, tar, a writable / and the users that task.toml names (with su, or setpriv for a number)"
)


def prepare(workdir: str | None, shared: Sequence[str], users: Sequence[str | int] = ()) -> str:
    """Fails in an image without tar, or without a user of the task's; makes the folders that both count on."""
    tar = "command -v tar >/dev/null 2>&1 || { echo 'tar: not found' >&2; exit 127; }"
    return "; ".join([tar, *(f"({as_user(user, '-c :')}) || exit 125" for user in users), folders(workdir, shared)])


def folders(workdir: str | None, shared: Sequence[str]) -> str:
    made = shlex.join([*shared, *([workdir] if workdir else [])])
    opened = f" && chmod 777 {shlex.join(shared)}" if shared else ""
    return f"mkdir -p {made or '/tmp'}{opened}"  # noqa: S108 - inside the sandbox


def script(run: str, *, cwd: str | None, env: Mapping[str, str] | None, user: str | int | None) -> str:
    """One shell script that runs a command as Harbor asked for it; `run` is `inline` or `from_file`.

    bash runs it where the image has bash, because task authors write for it; /bin/sh otherwise.
    """
    lines = [f"export {name}={shlex.quote(value)}" for name, value in (env or {}).items()]
    if cwd:
        lines.append(f"cd {shlex.quote(cwd)} || exit 126")
    if user is None or str(user) in {"root", "0"}:
        lines.append(f"if [ -x /bin/bash ]; then exec /bin/bash {run}; fi\nexec /bin/sh {run}")
    else:
        lines.append(as_user(user, run))
    return "\n".join(lines)


def as_user(user: str | int, run: str) -> str:
    if str(user).isdecimal():
        return f"exec setpriv --reuid={user} --regid={user} --clear-groups /bin/sh {run}"
    return f"exec su -s /bin/sh {shlex.quote(str(user))} -c {shlex.quote(f'/bin/sh {run}')}"


def fits_argument(text: str) -> bool:
    """A model may write a NUL, which no argument can hold: the command has to fail, not the way to the sandbox."""
    return "\0" not in text and len(text.encode(errors="replace")) <= LONGEST_ARGUMENT


def inline(command: str) -> str:
    return f"-c {shlex.quote(command)}"


def from_file(path: str) -> str:
    return shlex.quote(path)


def supervised(argv: list[str], pid_file: str) -> list[str]:
    return [SHELL, "-c", SUPERVISE, "harborrl", pid_file, *argv]


COUNTS = "harborrl-counts"
"""The name of a script that itself knows how much of its input it may read."""


def counting(text: str) -> list[str]:
    return [SHELL, "-c", text, COUNTS]


def kill(pid_file: str) -> list[str]:
    return [SHELL, "-c", KILL, "harborrl", pid_file]
