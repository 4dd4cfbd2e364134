"""`raytide diagnose [KIND/]NAME`: a redacted bundle for a bug report.

Reads a workload, or those of a namespace, with what belongs to them, nodes and the operator, with the rights of the caller; changes
nothing; and writes one tar.gz that only its owner may read. Exit code 0: written, even if something could not be read, 2: usage,
1: error. This module reads arguments; collect.py reads objects, redact_objects.py and redact_text.py decide what stays, bundle.py
packs and write_file.py writes.
"""

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from raytide.cli.connection_options import connection_options
from raytide.cli.why import parse_workload

if TYPE_CHECKING:
    from raytide.cli.diagnose.bundle import Bundle


@dataclass(frozen=True, slots=True)
class _Question:
    """What to collect."""

    kind: str
    name: str
    namespace: str | None
    is_everywhere: bool
    operator_namespace: str
    has_logs: bool


@click.command("diagnose", short_help="write a redacted bundle for a bug report")
@click.argument("workload", metavar="[[KIND/]NAME]", nargs=-1)
@click.option(
    "-n", "--namespace", help="Namespace of the workloads.  [default: that of the kubeconfig context, or `default`]"
)
@click.option("-A", "--all-namespaces", is_flag=True, help="Workloads of all namespaces.")
@click.option(
    "--operator-namespace",
    metavar="NAMESPACE",
    default="",
    help="Namespace of the operator.  [default: wherever a Deployment has the chart's labels]",
)
@click.option("--logs/--no-logs", "has_logs", default=True, help="Collect the logs of operator and autoscalers.")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="File to write.  [default: raytide-diagnose-TIME.tar.gz in the current folder]",
)
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
@connection_options
def command(
    *,
    workload: tuple[str, ...],
    namespace: str | None,
    all_namespaces: bool,
    operator_namespace: str,
    has_logs: bool,
    output: Path | None,
    force: bool,
    kubeconfig: Path | None,
    context: str | None,
) -> None:
    """Write a redacted bundle for a bug report: a RayCluster or a TrainingJob, or all of the namespace, with what belongs to them.

    Changes nothing and reads no Secrets. Look at the files before you send them: README.txt in the bundle says what is in it.
    Exit code 0: the bundle is written, even if something could not be read, 1: no bundle is written, 2: wrong usage.
    """
    if workload and all_namespaces:
        raise click.UsageError("a name cannot be combined with --all-namespaces")
    if namespace and all_namespaces:
        raise click.UsageError("--namespace cannot be combined with --all-namespaces")
    kind, name = parse_workload(workload) if workload else ("", "")
    from raytide.cli.columns import printable  # noqa: PLC0415 - `--help` needs none of these
    from raytide.cli.diagnose.bundle import Bundle  # noqa: PLC0415 - same
    from raytide.cli.diagnose.collect import folder_name  # noqa: PLC0415 - same
    from raytide.cli.diagnose.write_file import WriteError, check_target, write_file  # noqa: PLC0415 - same
    from raytide.client.workload_reader import AmbiguousError, ReadError, is_name  # noqa: PLC0415 - same
    from raytide.runtime.clock import Clock  # noqa: PLC0415 - same

    for what, text in (
        ("the name", name or "default"),
        ("--namespace", namespace or "default"),
        ("--operator-namespace", operator_namespace or "default"),
    ):
        if not is_name(text):
            raise click.UsageError(f"{what}: {printable(text)!r} is not a name in Kubernetes")
    bundle = Bundle(Clock().now())
    folder = folder_name(bundle.at)
    path = output or Path(f"{folder}.tar.gz")
    question = _Question(kind, name, namespace, all_namespaces, operator_namespace, has_logs)
    try:
        check_target(path, is_replaced=force)
        asyncio.run(_collect(question, bundle, kubeconfig, context))
        content = bundle.archive(folder)
        write_file(path, content, is_replaced=force)
    except AmbiguousError as error:
        raise click.UsageError(printable(str(error))) from error
    except (ReadError, WriteError) as error:
        raise click.ClickException(printable(str(error))) from error
    click.echo(
        f"{printable(str(path))}: {len(bundle.files)} files, {len(content)} bytes; look at them before you send it"
    )
    for note in bundle.notes:
        click.echo(f"not found: {printable(note)}", err=True)
    for each in bundle.unread.values():
        click.echo(f"not read: {printable(str(each))}", err=True)


async def _collect(question: _Question, bundle: "Bundle", kubeconfig: Path | None, context: str | None) -> None:
    from raytide.cli.diagnose.collect import Collector, subject  # noqa: PLC0415 - as above
    from raytide.cli.diagnose.redact_objects import Redactor  # noqa: PLC0415 - same
    from raytide.cli.operator import command as operator_command  # noqa: PLC0415 - same
    from raytide.client.workload_reader import connected  # noqa: PLC0415 - same

    # the flags of `raytide operator` are no secrets, and those that it rejects have no effect
    flags = [flag.removeprefix("--") for each in operator_command.params for flag in (*each.opts, *each.secondary_opts)]
    redactor = Redactor(os.urandom(32), flags)
    async with connected(kubeconfig, context) as (client, default_namespace):
        where = "" if question.is_everywhere else question.namespace or default_namespace
        collector = Collector(client, bundle, redactor, has_logs=question.has_logs)
        await collector.collect(question.kind, question.name, where, question.operator_namespace)
    bundle.finish(subject(question.kind, question.name, where), redactor.counts)
