"""Command line: `python -m devcluster up | down | status | load IMAGE | kubeconfig | build`."""

import os
import sys
from typing import Annotated

import typer
from rich.console import Console

from devcluster.backends import backend, choose_here
from devcluster.choice import OWN, recorded_choice
from devcluster.environment import completed, exports
from devcluster.errors import DevclusterError
from devcluster.extras import Request
from devcluster.gobuild import TESTS, ensure_binaries
from devcluster.progress import Reporter
from devcluster.settings import load_settings
from devcluster.status import print_report

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="A real Kubernetes on this machine.",
)


@app.command()
def up(
    context: Annotated[str | None, typer.Option(help="Use this context of your kubeconfig instead.")] = None,
    add: Annotated[
        list[str] | None, typer.Option("--with", help="Add `kueue`, `kwok` (nodes with GPUs) or `agent-sandbox`.")
    ] = None,
    remove: Annotated[list[str] | None, typer.Option("--without", help="Remove such an add-on.")] = None,
    kuberay: Annotated[str | None, typer.Option(help="KubeRay's version: 1.5.1 or 1.6.2.")] = None,
) -> None:
    """Create the cluster, or repair it; returns when it is ready. Add-ons stay until they are removed."""
    settings, reporter = load_settings(), Reporter()
    request = Request.parse(add or (), remove or (), kuberay)
    choice = choose_here(context, settings)
    backend(choice, settings, reporter).up(request)
    reporter.summary()
    reporter.say(exports(settings, os.environ))


@app.command()
def down() -> None:
    """Remove the cluster and everything in it. Compiled programs stay in the cache."""
    settings = load_settings()
    backend(recorded_choice(settings) or OWN, settings, Reporter()).down()


@app.command()
def load(images: Annotated[list[str], typer.Argument(help="Names of images that were built here.")]) -> None:
    """Make built images available to pods; only layers that the node lacks travel."""
    settings = load_settings()
    cluster = backend(recorded_choice(settings) or OWN, settings, Reporter())
    for image in images:
        cluster.load(image)


@app.command()
def status(
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Show versions, readiness, memory of each program and disk; exit status 1 if the cluster is not ready."""
    settings = load_settings()
    report = backend(recorded_choice(settings) or OWN, settings, Reporter()).status()
    if as_json:
        print(report.as_json())
    else:
        print_report(report, Console(highlight=False, width=None if sys.stdout.isatty() else 120))
    raise typer.Exit(0 if report.ready else 1)


@app.command()
def kubeconfig() -> None:
    """Print the path of the cluster's kubeconfig."""
    print(load_settings().kubeconfig)


@app.command()
def build() -> None:
    """Compile what tests without a node need (API server, helm), and start nothing. Needs no root."""
    ensure_binaries(load_settings().cache, TESTS, Reporter())


def main() -> None:
    os.environ.update(completed(os.environ))
    try:
        app()
    except DevclusterError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
