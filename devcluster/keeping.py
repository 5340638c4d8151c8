"""A program that is started again whenever it ends, as a kubelet does with a container.

Its keeper is a shell: what ends the shell ends the program, and a program is nobody's without its keeper.
"""

from collections.abc import Sequence

LOOP = """trap 'kill "$p"; wait "$p"; exit' TERM
while :; do
  setpriv --pdeathsig KILL -- "$@" & p=$!
  wait "$p"; echo "$1 ended with $? and is started again" >&2
  sleep 1
done"""


def kept(argv: Sequence[str]) -> tuple[str, ...]:
    """Command line of the keeper of `argv`, whose first word is a path. Needs util-linux's setpriv."""
    return ("/bin/sh", "-c", LOOP, "keeper", *argv)
