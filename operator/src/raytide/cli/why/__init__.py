"""`raytide why [KIND/]NAME`: why a RayCluster or a TrainingJob is not larger.

Reads the workload, its pods, events and nodes with the rights of the caller, changes nothing, and prints the stages from demand
to nodes, the first blocker with its holder and its fix, what can never run apart from what waits, and where capacity is short the
changes that would help, as a simulation finds them. Also installed as `kubectl raytide`. Exit code 0: nothing is missing, 3: something waits, 4: something can never run, 2: usage, 1: error. This
module reads arguments; client/ reads objects, raytide/explain decides, raytide/simulator tries changes, render.py prints.
"""

import asyncio
import os
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from raytide.cli.connection_options import connection_options
from raytide.cli.output import output_option
from raytide.cli.sharing_options import sharing_config, sharing_options

if TYPE_CHECKING:
    from raytide.api.config import SharingConfig
    from raytide.explain.model import Explanation

KINDS: Final = {
    **dict.fromkeys(("raycluster", "rayclusters", "rc", "raycluster.ray.io", "rayclusters.ray.io"), "RayCluster"),
    **dict.fromkeys(
        ("trainingjob", "trainingjobs", "tj", "trainingjob.paddlepaddle.org", "trainingjobs.paddlepaddle.org"),
        "TrainingJob",
    ),
}
"""Spellings of a kind that kubectl accepts, and `rc`, which is something else there."""


@click.command("why", short_help="show why a RayCluster or a TrainingJob is not larger")
@click.argument("workload", metavar="[KIND/]NAME", nargs=-1, required=True)
@click.option(
    "-n", "--namespace", help="Namespace of the workload.  [default: that of the kubeconfig context, or `default`]"
)
@output_option()
@connection_options
@sharing_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    workload: tuple[str, ...],
    namespace: str | None,
    output: str,
    kubeconfig: Path | None,
    context: str | None,
    **sharing: Any,
) -> None:
    """Show why a RayCluster or a TrainingJob is not larger, from demand to nodes. Changes nothing.

    If KIND is omitted, both kinds are searched. Exit code 0: nothing is missing, 1: the workload cannot be read, 2: wrong usage,
    3: something waits, 4: something can never run.
    """
    kind, name = parse_workload(workload)
    from raytide.cli.columns import printable  # noqa: PLC0415 - `--help` needs none of these
    from raytide.cli.why.render import render  # noqa: PLC0415 - same
    from raytide.client.workload_reader import AmbiguousError, ReadError, is_name  # noqa: PLC0415 - same

    for what, text in (("the name", name), ("--namespace", namespace or "default")):
        if not is_name(text):
            raise click.UsageError(f"{what}: {printable(text)!r} is not a name in Kubernetes")
    defaults = {each.name: each.default for each in ctx.command.params}
    is_default = all(defaults[flag] == value for flag, value in sharing.items())
    config = None if is_default else sharing_config(**sharing)  # imports the settings of the operator
    try:
        explanation = asyncio.run(_explanation(kind, name, namespace, (kubeconfig, context), config))
    except AmbiguousError as error:
        raise click.UsageError(printable(str(error))) from error
    except ReadError as error:
        raise click.ClickException(printable(str(error))) from error
    click.echo(render(explanation, output), color=False if os.environ.get("NO_COLOR") else None)
    ctx.exit(explanation.verdict.exit_code)


def parse_workload(words: tuple[str, ...]) -> tuple[str, str]:
    """Kind and name of `NAME`, `KIND/NAME` or `KIND NAME`; the kind is empty if it is not given."""
    kind, _, name = "/".join(words).rpartition("/")
    if len(words) > 2 or "/" in kind or not name:
        raise click.UsageError(f"{' '.join(words)!r} is not [KIND/]NAME")
    if kind and kind.lower() not in KINDS:
        raise click.UsageError(f"{kind!r} is no kind that Raytide manages: use raycluster/{name} or trainingjob/{name}")
    return KINDS.get(kind.lower(), ""), name


async def _explanation(
    kind: str,
    name: str,
    namespace: str | None,
    connection: tuple[Path | None, str | None],
    sharing: "SharingConfig | None",
) -> "Explanation":
    from raytide.client.workload_reader import WorkloadReader, connected  # noqa: PLC0415 - as above
    from raytide.runtime.clock import Clock  # noqa: PLC0415 - same

    async with connected(*connection) as (client, default_namespace):
        reader = WorkloadReader(client, namespace or default_namespace)
        reading = reader.read(kind, name)
        # pydantic is imported while the API server answers
        objects, module = await asyncio.gather(reading, asyncio.to_thread(import_module, "raytide.client.explained"))
        explanation: Explanation = await module.explained(reader, objects, Clock(), sharing)
    return explanation
