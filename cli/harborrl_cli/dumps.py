"""`harborrl dumps`."""

import typer

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="What runs have dumped.")
