"""`harborrl`. Each command imports what it needs when it runs, so that help is there at once."""

import typer

from harborrl_cli import argv, data, dumps, validate
from harborrl_cli.output import whole_output

app = typer.Typer(
    name="harborrl",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Data sets, dumps and manifests of HarborRL jobs; needs no cluster.",
)
app.add_typer(data.app, name="data")
app.add_typer(dumps.app, name="dumps")
app.command("validate")(validate.validate)
app.command("argv")(argv.argv)


def main() -> None:
    with whole_output():
        app()


if __name__ == "__main__":
    main()
