"""The command `raytide`: one file per subcommand, imported only when it is called.

The sandbox is a distribution of its own. Its subcommand is an entry point of the group `raytide.commands` (D22).
"""

import importlib
import os
import signal
import sys
from difflib import get_close_matches
from typing import Final

import click

_FOR_USERS: Final = {
    "why": "show why a RayCluster or a TrainingJob is not larger",
    "top": "show all workloads, and what they wait for",
    "ui": "show all workloads in the browser, with their history",
    "plan": "show what the next sharing pass would do, and why",
    "scale": "set the number of workers or trainers",
    "sandbox": "run a Kubernetes cluster on this machine, with pods as processes",
    "diagnose": "write a redacted bundle for a bug report",
}
_FOR_PODS: Final = {
    "operator": "run the operator (RayCluster and TrainingJob controllers)",
    "autoscaler": "run the autoscaler of one RayCluster, in its head pod",
    "crds": "apply or print the CustomResourceDefinitions of this version",
}
COMMANDS: Final = {**_FOR_USERS, **_FOR_PODS}


class LazyGroup(click.Group):
    """Imports `raytide.cli.<name>` when the command of that name is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Names of all subcommands."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """Import and return the subcommand; None if the name is unknown."""
        if cmd_name not in COMMANDS:
            return None
        _handle_sigterm_as_first_process()  # before the imports, which take a second
        module = importlib.import_module(f"raytide.cli.{cmd_name}")
        command: click.Command = module.find_command() if cmd_name == "sandbox" else module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """With the name that may be meant in the error."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            close = get_close_matches(args[0], COMMANDS, n=1)
            if not close:
                raise
            raise click.UsageError(f"{error.message} Did you mean {close[0]!r}?", ctx) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the command list without importing the commands."""
        for title, commands in (("Commands", _FOR_USERS), ("Commands for pods and administrators", _FOR_PODS)):
            with formatter.section(title):
                formatter.write_dl(list(commands.items()))


def _handle_sigterm_as_first_process() -> None:
    """Exit on SIGTERM until the command handles it: the first process of a container ignores a signal without a handler."""
    if os.getpid() == 1:
        signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))


@click.group(
    cls=LazyGroup,
    short_help="RayClusters and TrainingJobs on Kubernetes",
    context_settings={"help_option_names": ["--help", "-h"]},
)
@click.version_option(package_name="raytide")
def main() -> None:
    """Raytide: RayClusters and TrainingJobs on Kubernetes."""
