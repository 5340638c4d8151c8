"""A `docker` program that answers from a script, for what a real daemon seldom does: hang, break off, refuse."""

import os
import stat
from pathlib import Path

from harborrl_agent_server.sandboxes.docker_engine import Engine


class FakeDocker:
    """Shell lines by the client's first words; without any it prints nothing and succeeds."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.engine = Engine({"PATH": f"{folder}:{os.environ['PATH']}"})
        program = folder / "docker"
        program.write_text(
            f'#!/bin/sh\necho "$*" >>{folder}/asked\n'
            f'for f in "$1-$2" "$1"; do [ -e {folder}/"$f".sh ] && exec /bin/sh {folder}/"$f".sh "$@"; done\nexit 0\n'
        )
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        self.answers("info", """echo '{"OSType":"linux","DefaultAddressPools":[{"Base":"10.0.0.0/16","Size":18}]}'""")

    def answers(self, words: str, lines: str) -> None:
        (self.folder / f"{words.replace(' ', '-')}.sh").write_text(f"{lines}\n")

    def asked(self) -> list[str]:
        asked = self.folder / "asked"
        return asked.read_text().splitlines() if asked.exists() else []


HANGS = "exec sleep 600"
GONE = "echo 'Cannot connect to the Docker daemon at unix:///var/run/docker.sock.' >&2; exit 1"
