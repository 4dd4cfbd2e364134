"""`raytide plan`: what would the next sharing pass do, and why?

Takes a running cluster, or its objects in files, makes the same pool of it as the operator and prints the plan that the
operator would make, step by step with reasons; `--submit` adds jobs that are not there yet and tells what they change,
`--explain` tells why one job is not larger. Changes nothing. Ends with 0 and a plan, with 2 and one line for input that
cannot be used, with 1 when a cluster cannot be asked. It only reads flags and files; planning/ does the rest.
"""

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from raytide.api.config import SharingConfig
    from raytide.api.trainingjob import TrainingJob
    from raytide.cli.planning.objects import Snapshot
    from raytide.elastic.model import ParticipantId

STDIN: Final = "-"
_FILE_HELP: Final = (
    "Objects as `kubectl get nodes,pods,trainingjobs,resourcequotas,priorityclasses -A -o yaml` prints them, instead of "
    "a cluster; - is standard input; may be given more than once."
)


class _BadInputError(click.ClickException):
    """One line on standard error, exit code 2."""

    exit_code = 2


@click.command("plan", short_help="what the next sharing pass would do, and why")
@click.option("-f", "--filename", "files", metavar="FILE", multiple=True, help=_FILE_HELP)
@click.option(
    "--submit",
    "submitted",
    metavar="FILE",
    multiple=True,
    help="TrainingJobs that are not there yet: what if they were submitted?",
)
@click.option("--explain", "explained", metavar="NAMESPACE/JOB", default="", help="Why is this job not larger?")
@click.option("-o", "--output", type=click.Choice(["table", "yaml", "json"]), default="table", show_default=True)
@click.option("-n", "--namespace", help="Of whatever names none.  [default: the kubeconfig's, or `default`]")
@click.option(
    "--kubeconfig", metavar="FILE", type=click.Path(path_type=Path), help="Default: $KUBECONFIG, ~/.kube/config."
)
@click.option("--context", help="Of the kubeconfig; default: its current one.")
@click.option(
    "--max-load",
    metavar="RESOURCE=PERCENT,...",
    default="",
    help="How much of a resource growth may fill, as the operator is told; 100 where nothing is said.",
)
@click.option("--gpu-resources", metavar="NAME,...", default="", help="What GPUs are called, as the operator is told.")
@click.option("--at", "moment", metavar="TIME", default="", help="When to look at cool-downs (RFC 3339); default: now.")
def command(
    *,
    files: tuple[str, ...],
    submitted: tuple[str, ...],
    explained: str,
    output: str,
    namespace: str | None,
    kubeconfig: Path | None,
    context: str | None,
    max_load: str,
    gpu_resources: str,
    moment: str,
) -> None:
    """Print what the next sharing pass would do, and why. Changes nothing."""
    if explained and output != "table":
        raise click.UsageError("--explain answers in words: leave -o out")
    config, now = _config(max_load, gpu_resources), _moment(moment)

    from raytide.cli.planning.answer import answer  # noqa: PLC0415 - `--help` needs no planner
    from raytide.cli.planning.words import NotThere, explanation, rendered  # noqa: PLC0415 - same

    snapshot, namespace = _snapshot(files, namespace, kubeconfig, context)
    jobs = _submitted(submitted, snapshot, namespace, now)
    for remark in snapshot.remarks:
        click.echo(f"note: {remark}", err=True)
    result = answer(snapshot, jobs, config=config, now=now)
    try:
        text = explanation(result, _id(explained, namespace)) if explained else rendered(result, output)
    except NotThere as error:
        raise _BadInputError(str(error)) from error
    click.echo(text)


# --- flags -----------------------------------------------------------------------------------------------------------


def _config(max_load: str, gpu_resources: str) -> "SharingConfig":
    from raytide.api.config import SharingConfig  # noqa: PLC0415 - `--help` needs no settings
    from raytide.settings import parse_gpus, parse_max_load  # noqa: PLC0415 - same

    try:
        return SharingConfig(max_load_percent=parse_max_load(max_load), gpus=parse_gpus(gpu_resources))
    except ValueError as error:
        raise click.UsageError(f"--max-load: {error}") from error


def _moment(text: str) -> datetime:
    from raytide.runtime.clock import Clock  # noqa: PLC0415 - the one clock

    if not text:
        return Clock().now()
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise click.UsageError(f"--at: {text!r} is not a time such as 2026-01-31T12:00:00Z") from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _id(text: str, namespace: str) -> "ParticipantId":
    from raytide.api.meta import Key  # noqa: PLC0415 - as above
    from raytide.sharing.participants import id_of  # noqa: PLC0415 - same

    first, slash, name = text.partition("/")
    if not first or (slash and not name) or "/" in name:
        raise click.UsageError(f"--explain: {text!r} is not NAMESPACE/JOB")
    return id_of(Key(first, name) if slash else Key(namespace, first))


# --- input -----------------------------------------------------------------------------------------------------------


def _snapshot(
    files: tuple[str, ...], namespace: str | None, kubeconfig: Path | None, context: str | None
) -> "tuple[Snapshot, str]":
    """What is there, and the namespace that is meant where none is named."""
    from raytide.cli.planning.cluster import NoSnapshot, read_cluster  # noqa: PLC0415 - aiohttp only where it is asked
    from raytide.cli.planning.objects import BadInput, read_snapshot  # noqa: PLC0415 - as above

    if not files:
        try:
            snapshot, default_namespace = asyncio.run(read_cluster(kubeconfig, context))
        except NoSnapshot as error:
            raise click.ClickException(str(error)) from error
        return snapshot, namespace or default_namespace
    if kubeconfig or context:
        raise click.UsageError("either -f, or a cluster by --kubeconfig and --context")
    try:
        snapshot = read_snapshot(_texts(files), namespace or "default")
    except BadInput as error:
        raise _BadInputError(str(error)) from error
    if not snapshot.nodes:
        raise _BadInputError(f"{', '.join(files)}: no nodes: what there is to share has to be in it")
    return snapshot, namespace or "default"


def _submitted(files: tuple[str, ...], snapshot: "Snapshot", namespace: str, now: datetime) -> "list[TrainingJob]":
    """The jobs of --submit, each one checked as the API server and the operator would."""
    from raytide.cli.planning.objects import BadInput, read_submitted  # noqa: PLC0415 - as above

    if not files:
        return []
    try:
        return read_submitted(_texts(files), namespace, there={job.key for job in snapshot.jobs}, now=now)
    except BadInput as error:
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
        raise _BadInputError(f"{name}: this is no text in UTF-8") from error
    return text
