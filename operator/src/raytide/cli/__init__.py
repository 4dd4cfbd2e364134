"""The command `raytide`: one file per subcommand, imported only when it is called."""

import importlib
from typing import Final

import click

COMMANDS: Final = {
    "autoscaler": "run the autoscaler of one RayCluster, beside its head",
    "operator": "run the operator (RayCluster controller)",
    "plan": "what the next sharing pass would do, and why",
    "sandbox": "a Kubernetes cluster on this machine, with pods as processes",
}


class LazyGroup(click.Group):
    """Imports `raytide.cli.<name>` when the command of that name is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Names of all subcommands."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """The subcommand, imported now; None when there is none of that name."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"raytide.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """The command list, without importing any of them."""
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))


@click.group(cls=LazyGroup)
@click.version_option(package_name="raytide")
def main() -> None:
    """Raytide: RayClusters and TrainingJobs on Kubernetes."""
