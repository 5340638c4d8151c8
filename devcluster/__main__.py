"""Command line: `python -m devcluster up | down | status | load IMAGE | kubeconfig`."""

import sys
from typing import Annotated

import typer

from devcluster.cluster import OwnCluster
from devcluster.errors import DevclusterError
from devcluster.progress import Reporter
from devcluster.settings import load_settings

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__)


def cluster(reporter: Reporter) -> OwnCluster:
    return OwnCluster(load_settings(), reporter)


@app.command()
def up() -> None:
    """Create the cluster, or repair it; returns when it is ready."""
    reporter = Reporter()
    cluster(reporter).up()
    reporter.summary()
    reporter.say(f"export KUBECONFIG={load_settings().kubeconfig}")


@app.command()
def down() -> None:
    """Remove the cluster and everything in it. Compiled programs stay in the cache."""
    cluster(Reporter()).down()


@app.command()
def load(images: Annotated[list[str], typer.Argument(help="Names of images that buildah has built.")]) -> None:
    """Make built images available to pods; only layers that the node lacks travel."""
    current = cluster(Reporter())
    for image in images:
        current.load(image)


@app.command()
def kubeconfig() -> None:
    """Print the path of the cluster's kubeconfig."""
    print(load_settings().kubeconfig)


def main() -> None:
    try:
        app()
    except DevclusterError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
