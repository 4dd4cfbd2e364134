"""`raytide top`: RayClusters and TrainingJobs of a namespace, one lane each, live in a terminal.

A lane shows how many of the wanted workers or trainers are ready, and the first reason why they are not. In a terminal the lanes
are drawn again when something changes; without one a line is printed per change; `--once` prints all of them once. Watches the
two kinds with the rights of the caller and reads no pods. This module reads arguments; lanes.py reads objects, raytide/explain
decides, render.py draws.
"""

import asyncio
import os
import sys
from pathlib import Path

import click

from raytide.cli.connection_options import connection_options
from raytide.cli.output import output_option


@click.command("top", short_help="show all workloads, and what they wait for")
@click.option("-n", "--namespace", help="Namespace to show.  [default: that of the kubeconfig context, or `default`]")
@click.option("-A", "--all-namespaces", is_flag=True, help="Show all namespaces.")
@click.option("--once", is_flag=True, help="Print the lanes once and exit; implied by -o yaml and -o json.")
@output_option("table")
@click.option(
    "--interval",
    "interval_s",
    metavar="SECONDS",
    type=click.FloatRange(0.2, 60),
    default=1.0,
    show_default=True,
    help="Shortest time between two drawings.",
)
@connection_options
def command(
    *,
    namespace: str | None,
    all_namespaces: bool,
    once: bool,
    output: str,
    interval_s: float,
    kubeconfig: Path | None,
    context: str | None,
) -> None:
    """Show RayClusters and TrainingJobs, one row per workload: ready of desired, and the first blocker."""
    from raytide.cli.columns import printable  # noqa: PLC0415 - `--help` needs none of these
    from raytide.cli.top.lanes import run  # noqa: PLC0415 - same
    from raytide.cli.top.render import screen  # noqa: PLC0415 - same
    from raytide.client.workload_reader import ReadError, is_name  # noqa: PLC0415 - same

    if namespace and all_namespaces:
        raise click.UsageError("--namespace cannot be combined with --all-namespaces")
    if namespace and not is_name(namespace):
        raise click.UsageError(f"--namespace: {printable(namespace)!r} is not a name in Kubernetes")
    where = "" if all_namespaces else namespace
    is_drawn = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    try:
        asyncio.run(
            run(
                where,
                kubeconfig,
                context,
                screen=screen(is_terminal=is_drawn),
                once=output if once or output != "table" else "",
                interval_s=interval_s,
            )
        )
    except ReadError as error:
        raise click.ClickException(printable(str(error))) from error
    except KeyboardInterrupt:
        click.echo(err=True)
