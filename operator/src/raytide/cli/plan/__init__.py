"""`raytide plan`: what the next sharing pass would do, and why.

Takes a running cluster, or its objects in files, builds the same pool as the operator and prints the operator's plan
step by step with reasons; `--submit` adds TrainingJobs and RayClusters that do not exist yet and shows their effect. Changes
nothing. Exit code 0 with a plan, 2 with one line for unusable input, 1 when the cluster cannot be read. This module reads flags and files; the rest of the package does the work.
"""

import asyncio
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from raytide.cli.columns import printable
from raytide.cli.output import output_option
from raytide.cli.sharing_options import sharing_config, sharing_options

if TYPE_CHECKING:
    from raytide.cli.plan.from_files import Found
    from raytide.simulator.inputs import PlanInputs, Submission

STDIN: Final = "-"
_FILE_HELP: Final = (
    "File with the output of `kubectl get nodes,pods,trainingjobs,resourcequotas,priorityclasses,namespaces -A -o yaml`, to plan "
    "without a cluster; - is standard input; may be repeated."
)


class _BadInputError(click.ClickException):
    """One line on standard error, exit code 2."""

    exit_code = 2

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


@click.command("plan", short_help="show what the next sharing pass would do, and why")
@click.option("-f", "--filename", "files", metavar="FILE", multiple=True, help=_FILE_HELP)
@click.option(
    "--submit",
    "submitted",
    metavar="FILE",
    multiple=True,
    help="File with new TrainingJobs and RayClusters: show what would change if they were submitted; may be repeated.",
)
@output_option("table")
@click.option(
    "-n",
    "--namespace",
    help="Namespace of objects and jobs that have none.  [default: that of the kubeconfig context, or `default`]",
)
@click.option(
    "--kubeconfig",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Kubeconfig file.  [default: $KUBECONFIG, the service account of the pod, or ~/.kube/config]",
)
@click.option("--context", help="Context of the kubeconfig.  [default: its current context]")
@sharing_options
@click.option(
    "--at",
    "moment",
    metavar="TIME",
    default="",
    help="Time of the plan, in RFC 3339; it decides which cooldowns have ended.  [default: now]",
)
def command(
    *,
    files: tuple[str, ...],
    submitted: tuple[str, ...],
    output: str,
    namespace: str | None,
    kubeconfig: Path | None,
    context: str | None,
    moment: str,
    **sharing: Any,
) -> None:
    """Print what the next sharing pass would do, and why. Changes nothing.

    Exit code 0: a plan is printed, 1: the cluster cannot be read, 2: the input cannot be used.
    """
    config = sharing_config(**sharing)
    now = _moment(moment)

    from raytide.cli.plan.from_files import has_clusters  # noqa: PLC0415 - same
    from raytide.cli.plan.render import render  # noqa: PLC0415 - same
    from raytide.simulator.simulate import plan_next_pass  # noqa: PLC0415 - `--help` needs no planner

    new, has_tenants = _found(submitted), bool(config.tenants)
    snapshot, namespace = _snapshot(
        files, namespace, kubeconfig, context, has_tenants=has_tenants, has_clusters=has_clusters(new)
    )
    submission = _submission(new, snapshot, namespace, now)
    for note in snapshot.notes:
        click.echo(f"note: {printable(note)}", err=True)
    result = plan_next_pass(snapshot, submission, config=config, now=now)
    click.echo(render(result, output))


# --- flags -----------------------------------------------------------------------------------------------------------


def _moment(text: str) -> datetime:
    from raytide.api.conditions import parse_timestamp  # noqa: PLC0415 - `--help` needs no API
    from raytide.runtime.clock import Clock  # noqa: PLC0415 - the one clock

    if not text:
        return Clock().now()
    moment = parse_timestamp(text)
    if moment is None:
        raise click.UsageError(f"--at: {text!r} is not a time such as 2026-01-31T12:00:00Z")
    return moment


# --- input -----------------------------------------------------------------------------------------------------------


def _snapshot(
    files: tuple[str, ...],
    namespace: str | None,
    kubeconfig: Path | None,
    context: str | None,
    *,
    has_tenants: bool,
    has_clusters: bool,
) -> "tuple[PlanInputs, str]":
    """Read the objects; returns them and the default namespace."""
    from raytide.cli.plan.from_files import InputError, read_snapshot  # noqa: PLC0415 - as above
    from raytide.client.cluster_reader import SnapshotError, read_cluster  # noqa: PLC0415 - aiohttp only where it is asked

    if not files:
        try:
            snapshot, default_namespace = asyncio.run(
                read_cluster(kubeconfig, context, has_tenants=has_tenants, has_clusters=has_clusters)
            )
        except SnapshotError as error:
            raise click.ClickException(printable(str(error))) from error
        return snapshot, namespace or default_namespace
    if kubeconfig or context:
        raise click.UsageError("--filename cannot be combined with --kubeconfig or --context")
    try:
        snapshot = read_snapshot(_texts(files), namespace or "default")
    except InputError as error:
        raise _BadInputError(str(error)) from error
    if not snapshot.nodes:
        raise _BadInputError(f"{', '.join(files)}: contains no Node; add the output of `kubectl get nodes -o yaml`")
    return snapshot, namespace or "default"


def _found(files: tuple[str, ...]) -> "tuple[Found, ...]":
    """The objects of --submit."""
    from raytide.cli.plan.from_files import InputError, found_in  # noqa: PLC0415 - as above

    if not files:
        return ()
    try:
        return found_in(_texts(files))
    except InputError as error:
        raise _BadInputError(str(error)) from error


def _submission(found: "tuple[Found, ...]", snapshot: "PlanInputs", namespace: str, now: datetime) -> "Submission":
    """The objects of --submit, validated as by the API server and the operator."""
    from raytide.cli.plan.from_files import InputError, read_submitted  # noqa: PLC0415 - as above

    try:
        return read_submitted(found, snapshot, namespace, now=now)
    except InputError as error:
        raise _BadInputError(str(error)) from error


def _texts(files: Iterable[str]) -> list[tuple[str, str]]:
    return [("standard input" if name == STDIN else name, _text(name)) for name in files]


def _text(name: str) -> str:
    try:
        with click.open_file(name, encoding="utf-8") as opened:
            text: str = opened.read()
    except OSError as error:
        raise _BadInputError(f"{name}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise _BadInputError(f"{name}: not valid UTF-8 text") from error
    return text
