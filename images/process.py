"""Running the programs that do the work: output to a log, the end of it to the user when one fails."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

SHOWN_ON_FAILURE = 25


class BuildError(Exception):
    """A build cannot go on. The text is for the user: what failed, where to look, what to do."""


def run(argv: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> None:
    """Run to the end, all output appended to `log`; raise BuildError with its last lines when the program fails."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        output.write(f"\n$ {' '.join(argv)}\n".encode())
        output.flush()
        try:
            status = subprocess.run(
                argv, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=env, check=False
            )
        except FileNotFoundError as error:
            raise BuildError(f"{argv[0]} is not installed: {_install_hint(argv[0])}") from error
    if status.returncode != 0:
        tail = log.read_text(encoding="utf-8", errors="replace").splitlines()[-SHOWN_ON_FAILURE:]
        raise BuildError(
            "\n".join([*tail, f"{argv[0]} failed with exit code {status.returncode}; the whole output is in {log}"])
        )


def capture(argv: Sequence[str]) -> str | None:
    """Standard output without surrounding space, or None when the program is missing or fails."""
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _install_hint(program: str) -> str:
    return f"apt-get install {program}" if program in ("buildah", "debootstrap") else f"install {program} and run again"
