"""Command line of the demo: `python -m demo prepare | quickstart | learn`."""

from __future__ import annotations

import sys
import time

import typer

from demo import learn as learning
from demo import quickstart as quick
from demo.memory import Peak
from demo.prepare import UnsuitableClusterError
from demo.prepare import prepare as set_up
from demo.shell import CommandError

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__)


@app.command()
def prepare() -> None:
    """Start the cluster, build and load the images, install the chart."""
    started = time.monotonic()
    set_up()
    print(f"\nready after {time.monotonic() - started:.0f} s")  # noqa: T201 - a command line prints


@app.command()
def quickstart() -> None:
    """Everything, from nothing to a finished job."""
    started = time.monotonic()
    peak = Peak()
    sys.exit(quick.run(set_up(), peak, started))


@app.command()
def learn() -> None:
    """The longer run: evaluation, 30 steps, evaluation, table and plot."""
    sys.exit(learning.run(set_up()))


if __name__ == "__main__":
    try:
        app()
    except (CommandError, UnsuitableClusterError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("\ninterrupted; the cluster and the job go on. The same command picks them up again.")
