"""`raytide scale [KIND/]NAME N|GROUP=N …`: the number of workers of a RayCluster, or of trainers of a TrainingJob.

RayClusters have no scale subresource, and `kubectl edit` has to find the group in a list. Writes with the rights of the caller,
and says what may change the number again. With `--wait` it ends when the workers are ready; if that fails, it prints what was written
before the error. Exit code 0: written (and ready), 2: usage, 1: error. client/ writes.
"""

import asyncio
import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import click

from raytide.cli.connection_options import connection_options
from raytide.cli.output import encoded, output_option
from raytide.cli.why import parse_workload

if TYPE_CHECKING:
    from raytide.api.meta import Manifest
    from raytide.client.workloads import Connection


ControlledBy = Literal["autoscaler", "fair-sharing"]
"""Ray's autoscaler, or the fair sharing of TrainingJobs."""
_NOTES: Final[Mapping[ControlledBy, str]] = {
    "autoscaler": "enableInTreeAutoscaling is true, so Ray's autoscaler may change the number again",
    "fair-sharing": "fair sharing may change the number again, within the capacity and the bounds of the job",
}


class Bounded(NamedTuple):
    """A size beyond a bound of the spec: which field, and how many are wanted therefore."""

    group: str
    """Empty for a TrainingJob."""
    field: str
    wanted: int

    @property
    def sentence(self) -> str:
        """For people."""
        where = f"group {self.group}: " if self.group else ""
        return f"{where}{self.field} is {self.wanted}, so {self.wanted} are wanted"


def bounds_exceeded(obj: "Manifest", sizes: int | Mapping[str, int]) -> tuple[Bounded, ...]:
    """The sizes beyond the bounds of the object, which stay in its spec."""
    spec, found = obj.get("spec") or {}, []
    if obj.get("kind") == "TrainingJob":
        groups, low, high = [{**(spec.get("trainer") or {}), "groupName": ""}], "min-instance", "max-instance"
    else:
        groups, low, high = spec.get("workerGroupSpecs") or [], "minReplicas", "maxReplicas"
    for group in groups:
        name = str(group.get("groupName", ""))
        size = sizes if isinstance(sizes, int) else sizes.get(name)
        for field, is_beyond in ((low, operator.lt), (high, operator.gt)):
            bound = group.get(field)
            if size is not None and isinstance(bound, int) and is_beyond(size, bound):
                found.append(Bounded(name, field, bound))
    return tuple(found)


class _Command(click.Command):
    """With a message for a negative number, which click takes for an option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        negative = next((word for word in args if re.fullmatch(r"-\d+", word)), None)
        if negative is not None:
            raise click.UsageError(f"{negative}: the number must not be negative", ctx)
        return super().parse_args(ctx, args)


@dataclass(frozen=True, slots=True)
class Scaled:
    """What was written, and what may change it again."""

    kind: str
    namespace: str
    name: str
    sizes: int | dict[str, int]
    """Of the only worker group or of the trainers, or by group."""
    controlled_by: ControlledBy | None
    """Which controller may change the number again."""
    reached: str
    """With --wait: what is ready."""
    error: str
    """With --wait: why it ended before that; the sizes are written nevertheless."""
    bounded: tuple["Bounded", ...] = ()
    """The sizes that are beyond a bound of the spec."""

    @property
    def note(self) -> str:
        """The same as a sentence; empty if none does."""
        return _NOTES[self.controlled_by] if self.controlled_by else ""

    def lines(self) -> list[str]:
        """For people."""
        sizes = self.sizes if isinstance(self.sizes, dict) else {"": self.sizes}
        text = ", ".join(f"{group} {size}".strip() for group, size in sizes.items())
        notes = [*(f"note: {each.sentence}" for each in self.bounded), *([f"note: {self.note}"] if self.note else [])]
        reached = [self.reached] if self.reached else []
        return [f"{self.kind} {self.namespace}/{self.name}: {text} requested", *notes, *reached]

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
            "requested": self.sizes,
            "controlledBy": self.controlled_by,
            "note": self.note,
            "bounded": [{"group": each.group, "field": each.field, "wanted": each.wanted} for each in self.bounded],
            "reached": self.reached,
            "error": self.error,
        }


@click.command("scale", cls=_Command, short_help="set the number of workers or trainers")
@click.argument("workload", metavar="[KIND/]NAME")
@click.argument("sizes", metavar="N|GROUP=N...", nargs=-1, required=True)
@click.option(
    "-n", "--namespace", help="Namespace of the workload.  [default: that of the kubeconfig context, or `default`]"
)
@click.option(
    "--wait", is_flag=True, help="Wait until all wanted workers are ready, or the trainers of the minimum run."
)
@click.option(
    "--timeout",
    "timeout_s",
    metavar="SECONDS",
    type=click.FloatRange(0.1),
    default=600.0,
    show_default=True,
    help="For --wait.",
)
@output_option()
@connection_options
def command(
    *,
    workload: str,
    sizes: tuple[str, ...],
    namespace: str | None,
    wait: bool,
    timeout_s: float,
    output: str,
    kubeconfig: Path | None,
    context: str | None,
) -> None:
    """Set the number of workers of a RayCluster's only group or of groups by name, or the number of trainers of a TrainingJob.

    Ray's autoscaler may change the number again, and so may fair sharing. `raytide why` shows what they decide.
    Exit code 0: the number is written, and with --wait reached, 1: the number is not written or not reached in time, 2: wrong usage.
    """
    kind, name = parse_workload((workload,))
    wanted = parse_sizes(sizes)
    from raytide.cli.columns import printable  # noqa: PLC0415 - `--help` needs none of these
    from raytide.client.outcome import WorkloadError  # noqa: PLC0415 - same
    from raytide.client.workload_reader import AmbiguousError, ReadError, is_name  # noqa: PLC0415 - same

    for what, text in (("the name", name), ("--namespace", namespace or "default")):
        if not is_name(text):
            raise click.UsageError(f"{what}: {printable(text)!r} is not a name in Kubernetes")
    connection: Connection = {"kubeconfig": kubeconfig, "context": context}
    waits_s = timeout_s if wait else None
    try:
        scaled = asyncio.run(_scale(kind, name, wanted, namespace, connection, waits_s=waits_s))
    except (AmbiguousError, ValueError) as error:
        raise click.UsageError(printable(str(error))) from error
    except (ReadError, WorkloadError) as error:
        raise click.ClickException(printable(str(error))) from error
    if output != "text":
        click.echo(encoded(output, scaled.as_json()))
    else:
        for line in scaled.lines():
            click.echo(printable(line))
    if scaled.error:
        raise click.ClickException(printable(scaled.error))


def parse_sizes(words: tuple[str, ...]) -> int | dict[str, int]:
    """One number, or numbers by group."""
    if len(words) == 1 and words[0].isdecimal():
        return int(words[0])
    sizes: dict[str, int] = {}
    for word in words:
        group, _, number = word.rpartition("=")
        if not group or not number.isdecimal():
            several = "" if len(words) == 1 else ": give one number, or one for each group by its name"
            raise click.UsageError(f"{word!r} is neither a number nor GROUP=NUMBER{several}")
        if group in sizes:
            raise click.UsageError(f"group {group!r} is given twice")
        sizes[group] = int(number)
    return sizes


async def _scale(
    kind: str,
    name: str,
    sizes: int | dict[str, int],
    namespace: str | None,
    connection: "Connection",
    *,
    waits_s: float | None,
) -> Scaled:
    """Write the sizes, and wait if it is asked for. Raises ReadError, WorkloadError and ValueError if they are not written."""
    from raytide.client.outcome import WorkloadError  # noqa: PLC0415 - as above
    from raytide.client.workload_reader import WorkloadReader, connected  # noqa: PLC0415 - same
    from raytide.client.workloads import RayCluster, TrainingJob  # noqa: PLC0415 - same
    from raytide.explain.model import RAYCLUSTER  # noqa: PLC0415 - same

    async with connected(connection["kubeconfig"], connection["context"]) as (client, default_namespace):
        where = namespace or default_namespace
        kind, obj, _ = await WorkloadReader(client, where).find(kind, name)
    if kind == RAYCLUSTER:
        workload: RayCluster | TrainingJob = await RayCluster(name, namespace=where, **connection).scale(sizes)
    elif isinstance(sizes, int):
        workload = await TrainingJob(name, namespace=where, **connection).scale(sizes)
    else:
        raise ValueError(f"TrainingJob {where}/{name} has no worker groups: give the number of trainers")
    reached = error = ""
    if waits_s is not None:
        try:
            reached = str(await workload.wait(waits_s))
        except WorkloadError as failure:
            error = str(failure)
    return Scaled(kind, where, name, sizes, controlled_by(obj), reached, error, bounds_exceeded(obj, sizes))


def controlled_by(obj: "Manifest") -> ControlledBy | None:
    """Which controller may change the sizes of this workload."""
    spec = obj.get("spec") or {}
    if spec.get("enableInTreeAutoscaling"):
        return "autoscaler"
    if obj.get("kind") == "TrainingJob" and (spec.get("scaling") or {}).get("enabled", True):
        return "fair-sharing"
    return None
