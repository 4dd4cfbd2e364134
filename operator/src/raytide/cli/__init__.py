"""The command `raytide`: one file per subcommand, imported only when it is called.

The sandbox is a distribution of its own. Its subcommand is an entry point of the group `raytide.commands` (D22).
"""

import importlib
import importlib.metadata
from typing import Final, NoReturn

import click

COMMANDS: Final = {
    "autoscaler": "run the autoscaler of one RayCluster, in its head pod",
    "operator": "run the operator (RayCluster and TrainingJob controllers)",
    "plan": "show what the next sharing pass would do, and why",
}
SANDBOX: Final = "sandbox"
ENTRY_POINTS: Final = "raytide.commands"
_HELP: Final = sorted({**COMMANDS, SANDBOX: "run a Kubernetes cluster on this machine, with pods as processes"}.items())


class LazyGroup(click.Group):
    """Imports the command of a name when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Names of all subcommands."""
        return [name for name, _ in _HELP]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """Import and return the subcommand; None if the name is unknown."""
        if cmd_name == SANDBOX:
            return _find_sandbox()
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"raytide.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the command list without importing the commands."""
        with formatter.section("Commands"):
            formatter.write_dl(_HELP)


def _find_sandbox() -> click.Command:
    """The sandbox's command, or one that says how to install it."""
    for entry_point in importlib.metadata.entry_points(group=ENTRY_POINTS, name=SANDBOX):
        command: click.Command = entry_point.load()
        return command
    return click.Command(
        SANDBOX,
        callback=_report_missing_sandbox,
        params=[click.Argument(["arguments"], nargs=-1, type=click.UNPROCESSED)],
        context_settings={"ignore_unknown_options": True},
        add_help_option=False,
    )


def _report_missing_sandbox(arguments: tuple[str, ...]) -> NoReturn:  # noqa: ARG001 - any arguments of the missing command
    raise click.ClickException("the sandbox is not installed; run `pip install . ./sandbox` in the checkout of Raytide")


@click.group(cls=LazyGroup)
@click.version_option(package_name="raytide")
def main() -> None:
    """Raytide: RayClusters and TrainingJobs on Kubernetes."""
