"""Options of the commands that compute a sharing pass: the operator's settings that decide about it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from raytide.api.config import SharingConfig

_Function = TypeVar("_Function", bound=Callable[..., None])
_Value = TypeVar("_Value")


def sharing_options(command: _Function) -> _Function:
    """Add the flags of the operator that change a pass; `sharing_config` reads their values."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "--max-load",
        metavar="RESOURCE=PERCENT,...",
        default="",
        help="Percentage of each resource that growth may use; set it as for the operator.  [default: 100]",
    ),
    click.option(
        "--gpu-resources", metavar="NAME,...", default="", help="Resources that are GPUs; set it as for the operator."
    ),
    click.option("--rebalance-gap", default="1/5", show_default=True, help="As for the operator."),
    click.option(
        "--victims-per-trainer", type=click.IntRange(1, 1000), default=8, show_default=True, help="As for the operator."
    ),
    click.option("--reservation-period", default="10m", show_default=True, help="As for the operator."),
    click.option("--tenants", metavar="LIST", default="", help="As for the operator."),
)


def sharing_config(
    *,
    max_load: str,
    gpu_resources: str,
    rebalance_gap: str,
    victims_per_trainer: int,
    reservation_period: str,
    tenants: str,
) -> "SharingConfig":
    """The configuration that these flags describe; raises UsageError."""
    from raytide.api.config import SharingConfig  # noqa: PLC0415 - `--help` needs no settings
    from raytide.manager import settings  # noqa: PLC0415 - same
    from raytide.manager.tenant_settings import parse_tenants  # noqa: PLC0415 - same

    return SharingConfig(
        max_load_percent=_parsed("--max-load", settings.parse_max_load, max_load),
        gpus=settings.parse_gpus(gpu_resources),
        rebalance_gap=_parsed("--rebalance-gap", settings.parse_gap, rebalance_gap),
        victims_per_trainer=victims_per_trainer,
        reservation_s=_parsed("--reservation-period", settings.parse_seconds_or_none, reservation_period),
        tenants=_parsed("--tenants", parse_tenants, tenants),
    )


def _parsed(flag: str, parse: Callable[[str], _Value], text: str) -> _Value:
    try:
        return parse(text)
    except ValueError as error:
        raise click.UsageError(f"{flag}: {error}") from error
