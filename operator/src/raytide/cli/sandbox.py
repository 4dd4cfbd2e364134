"""`raytide sandbox`: the command of the distribution raytide-sandbox, found by its entry point (D22).

A module of its own, because searching the installed distributions takes a sixth of the start of any other command.
"""

import importlib.metadata
from typing import Final, NoReturn

import click

NAME: Final = "sandbox"
ENTRY_POINTS: Final = "raytide.commands"


def find_command() -> click.Command:
    """The sandbox's command, or one that says how to install it."""
    for entry_point in importlib.metadata.entry_points(group=ENTRY_POINTS, name=NAME):
        command: click.Command = entry_point.load()
        return command
    return click.Command(
        NAME,
        callback=_report_missing,
        params=[click.Argument(["arguments"], nargs=-1, type=click.UNPROCESSED)],
        context_settings={"ignore_unknown_options": True},
        add_help_option=False,
    )


def _report_missing(arguments: tuple[str, ...]) -> NoReturn:  # noqa: ARG001 - any arguments of the missing command
    raise click.ClickException("the sandbox is not installed; run `pip install . ./sandbox` in the checkout of Raytide")
