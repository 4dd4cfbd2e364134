"""`raytide version`: the version of this program and of the Python that runs it."""

import importlib.metadata
import platform

import click

from raytide.cli.output import encoded, output_option


@click.command("version", short_help="show the version")
@output_option()
def command(output: str) -> None:
    """Show the version of Raytide; `-o json` has that of Python and of the platform too."""
    version = importlib.metadata.version("raytide")
    found = {"version": version, "python": platform.python_version(), "platform": platform.platform()}
    click.echo(f"raytide, version {version}" if output == "text" else encoded(output, found))
