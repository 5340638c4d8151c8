"""`harborrl`. Each command imports what it needs when it runs, so that help is there at once."""

from typing import Annotated

import typer

from harborrl_cli import argv, data, dumps, validate
from harborrl_cli.output import whole_output
from harborrl_cli.printing import say

app = typer.Typer(
    name="harborrl",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.add_typer(data.app, name="data")
app.add_typer(dumps.app, name="dumps")
app.command("validate")(validate.validate)
app.command("argv")(argv.argv)


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import PackageNotFoundError, version

        try:
            say(f"harborrl {version('harborrl')}")
        except PackageNotFoundError:
            say("harborrl, from a checkout that is not installed")
        raise typer.Exit


@app.callback()
def root(
    _: Annotated[bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)] = False,
) -> None:
    """Data sets, dumps and manifests of HarborRL jobs; needs no cluster."""


def main() -> None:
    with whole_output():
        app()


if __name__ == "__main__":
    main()
