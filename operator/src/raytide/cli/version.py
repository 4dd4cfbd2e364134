"""`raytide version`: the version of this program and of the Python that runs it."""

import importlib.metadata
import json
import platform

import click


@click.command("version", short_help="show the version")
@click.option("-o", "--output", type=click.Choice(["text", "yaml", "json"]), default="text", show_default=True)
def command(output: str) -> None:
    """Show the version of Raytide; `-o json` has that of Python and of the platform too."""
    version = importlib.metadata.version("raytide")
    found = {"version": version, "python": platform.python_version(), "platform": platform.platform()}
    if output == "json":
        click.echo(json.dumps(found, indent=2))
    elif output == "yaml":
        import yaml  # noqa: PLC0415 - for this output only

        click.echo(yaml.safe_dump(found, sort_keys=False).rstrip())
    else:
        click.echo(f"raytide, version {version}")
