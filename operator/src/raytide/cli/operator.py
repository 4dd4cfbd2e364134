"""`raytide operator`: run the controllers.

Flags are spelled like KubeRay's (RC §6.3), so that its charts and manifests keep working; a flag of a feature that is
not implemented is rejected by name instead of being ignored. Every flag can also be set as `RAYTIDE_<FLAG>`. Only flags
are read here; manager/main.py does the rest.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from typing import Any, Final

import click

from raytide.api.config import DEFAULT_ETCD_IMAGE
from raytide.api.node_autoscaler import Presence
from raytide.manager.settings import (
    Settings,
    gates_without_effect,
    parse_controllers,
    parse_feature_gates,
    parse_gap,
    parse_gpus,
    parse_max_load,
    parse_namespaces,
    parse_seconds,
    parse_seconds_or_none,
    parse_whole_seconds,
    variables_without_effect,
)
from raytide.manager.tenant_settings import parse_tenants

log = logging.getLogger(__name__)

UNSUPPORTED_FLAGS: Final = {
    "--enable-batch-scheduler": "batch schedulers are not supported yet",
    "--batch-scheduler": "batch schedulers are not supported yet",
    "--config": "configuration files are not supported yet; use flags and environment variables",
    "--log-file-path": "logs go to standard error only",
    "--log-file-encoder": "logs go to standard error only",
    "--forced-cluster-upgrade": "it has no effect, as in KubeRay; remove it",
    "--use-kubernetes-proxy": "RayJob and RayService are not managed by Raytide",
    "--qps": "requests are limited by the number in flight, not by rate; remove it",
    "--burst": "requests are limited by the number in flight, not by rate; remove it",
    "--zap-devel": "use --log-level",
    "--zap-encoder": "use --log-format",
    "--zap-log-level": "use --log-level",
    "--zap-stacktrace-level": "tracebacks are always logged",
    "--zap-time-encoding": "times are always ISO 8601",
}
"""KubeRay's flags that are not supported, and the message for each."""

Command = Callable[..., None]


def _reject_unsupported(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    if value is not None and ctx.get_parameter_source(param.name or "") is click.core.ParameterSource.COMMANDLINE:
        flag = param.opts[0]
        raise click.UsageError(f"{flag}: {UNSUPPORTED_FLAGS[flag]}")
    return value


def _reject_disabled_metrics(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    if value is not None and value.lower() == "false":
        raise click.UsageError("--enable-metrics=false: use --metrics-addr=0")
    return value


def unsupported_options(command: Command) -> Command:
    """Add every flag of NOT_BUILT, hidden, as an option that fails with its message."""
    for flag in UNSUPPORTED_FLAGS:
        option = click.option(
            flag,
            hidden=True,
            expose_value=False,
            callback=_reject_unsupported,
            is_flag=False,
            flag_value="true",
            default=None,
        )
        command = option(command)
    return command


def _checked(parse: Callable[[str], Any]) -> Callable[..., Any]:
    def callback(_ctx: click.Context, param: click.Parameter, value: str) -> Any:
        try:
            return parse(value)
        except ValueError as error:
            raise click.BadParameter(str(error), param=param) from error

    return callback


def _log_format(_ctx: click.Context, _param: click.Parameter, value: str) -> str:
    return "text" if value == "console" else value


def _address(text: str) -> str:
    from raytide.runtime.http_endpoints import address_of  # noqa: PLC0415 - aiohttp only when the operator really runs

    address_of(text)
    return text


def _variable(flag: str) -> str:
    return "RAYTIDE_" + flag.removeprefix("--").replace("-", "_").upper()


def _setting(field: str, flag: str, *aliases: str, **attributes: Any) -> Callable[[Command], Command]:
    """An option whose value becomes the field of that name in `Settings`."""
    return click.option(flag, *aliases, field, envvar=_variable(flag), **attributes)


@click.command(name="operator")
@_setting(
    "kubeconfig",
    "--kubeconfig",
    default="",
    help="Path to the kubeconfig; default: $KUBECONFIG, in-cluster, ~/.kube/config.",
)
@_setting(
    "watch_namespaces",
    "--watch-namespace",
    default="",
    callback=_checked(parse_namespaces),
    help="Comma-separated namespaces to watch; default: all.",
)
@_setting(
    "reconcile_concurrency",
    "--reconcile-concurrency",
    type=click.IntRange(1, 256),
    default=8,
    show_default=True,
    help="Maximum number of concurrent reconciles per kind.",
)
@_setting(
    "controllers",
    "--controllers",
    default="raycluster,trainingjob",
    show_default=True,
    callback=_checked(parse_controllers),
    help="Comma-separated controllers to run; the kinds of the others are not watched and need no permissions.",
)
@_setting(
    "metrics_address",
    "--metrics-addr",
    default=":8080",
    show_default=True,
    callback=_checked(_address),
    help="Address that serves /metrics; 0 disables it.",
)
@_setting(
    "health_address",
    "--health-probe-bind-address",
    default=":8082",
    show_default=True,
    callback=_checked(_address),
    help="Address that serves /healthz and /readyz; 0 disables it.",
)
@_setting(
    "log_level",
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="Minimum level of log messages.",
)
@_setting(
    "log_format",
    "--log-format",
    "--log-stdout-encoder",
    type=click.Choice(["text", "json", "console"]),
    default="text",
    show_default=True,
    callback=_log_format,
    help="Format of log lines: key=value text, or a JSON object per line. The second name and `console`, which means text, are KubeRay's.",
)
@_setting(
    "feature_gates",
    "--feature-gates",
    default="",
    callback=_checked(parse_feature_gates),
    help="Comma-separated feature gates, such as RayMultiHostIndexing=false.",
)
@_setting(
    "is_leader_election_enabled",
    "--enable-leader-election",
    is_flag=False,
    flag_value="true",
    default=None,
    type=bool,
    help="Write only as leader, while holding a Lease; default: true in a cluster, or with a Lease namespace.",
)
@_setting(
    "leader_election_namespace",
    "--leader-election-namespace",
    default="",
    help="Namespace of the Lease; default: the pod's namespace, or that of the kubeconfig.",
)
@_setting(
    "lease_duration_s",
    "--leader-election-lease-duration",
    default="30s",
    show_default=True,
    callback=_checked(parse_whole_seconds),
    help="Time without a renewal after which another replica may acquire the Lease.",
)
@_setting(
    "renew_deadline_s",
    "--leader-election-renew-deadline",
    default="20s",
    show_default=True,
    callback=_checked(parse_seconds),
    help="Time after the last renewal during which the leader may write.",
)
@_setting(
    "retry_period_s",
    "--leader-election-retry-period",
    default="4s",
    show_default=True,
    callback=_checked(parse_seconds),
    help="Interval between renewals of the Lease.",
)
@_setting(
    "autoscaler_mode",
    "--autoscaler-mode",
    type=click.Choice(["raytide", "ray"]),
    default="raytide",
    show_default=True,
    help="Autoscaler in head pods: Raytide's, or Ray's from the Ray image.",
)
@_setting(
    "autoscaler_image",
    "--autoscaler-image",
    default="",
    help="Image of Raytide's autoscaler; default: the published image of this version.",
)
@_setting(
    "creates_autoscaler_rbac",
    "--autoscaler-rbac",
    is_flag=False,
    flag_value="true",
    default=True,
    show_default=True,
    type=bool,
    help="Create the service account, role and role binding of each autoscaler; false: users create them.",
)
@_setting(
    "creates_auth_secrets",
    "--auth-secrets",
    is_flag=False,
    flag_value="true",
    default=False,
    show_default=True,
    type=bool,
    help="Create the Secret with the token of each RayCluster with token authentication.",
)
@_setting(
    "state_tracks_readiness",
    "--state-tracks-readiness",
    is_flag=False,
    flag_value="true",
    default=False,
    show_default=True,
    type=bool,
    help="status.state leaves ready when pods become unready (KubeRay keeps it; Kueue reads it).",
)
@_setting(
    "sharing_period_s",
    "--sharing-period",
    default="30s",
    show_default=True,
    callback=_checked(parse_seconds),
    help="Maximum interval between two passes that share the cluster among TrainingJobs.",
)
@_setting(
    "max_load_percent",
    "--max-load",
    default="",
    callback=_checked(parse_max_load),
    help="Percentage of the cluster up to which TrainingJobs grow, such as cpu=90,memory=95; default: 100.",
)
@_setting(
    "gpu_resources",
    "--gpu-resources",
    default="",
    callback=_checked(parse_gpus),
    help="Comma-separated resource names that count as GPUs; default: nvidia.com/gpu,amd.com/gpu.",
)
@_setting(
    "rebalance_gap",
    "--rebalance-gap",
    default="1/5",
    show_default=True,
    callback=_checked(parse_gap),
    help="Fraction of a TrainingJob's score by which another job's must be lower before trainers move to it.",
)
@_setting(
    "victims_per_trainer",
    "--victims-per-trainer",
    default=8,
    show_default=True,
    type=click.IntRange(1, 1000),
    help="Maximum number of trainers removed for each trainer that another TrainingJob gains above its minimum.",
)
@_setting(
    "reservation_s",
    "--reservation-period",
    default="10m",
    show_default=True,
    callback=_checked(parse_seconds_or_none),
    help="How long the first TrainingJob in line keeps a reservation before it has none for the same time, then for two, four and eight times as long; 0s: no reservations.",
)
@_setting(
    "node_autoscaler",
    "--node-autoscaler",
    default=Presence.AUTO.value,
    show_default=True,
    type=click.Choice([each.value for each in Presence]),
    help="Whether nodes are added for pods without one: then TrainingJobs with GPUs have pods from time to time although there is no capacity. auto: if Karpenter or Cluster Autoscaler is found.",
)
@_setting(
    "tenants",
    "--tenants",
    default="",
    callback=_checked(parse_tenants),
    help="Tenants as a YAML or JSON list of name, nominalQuota, borrowingLimit and weight; the label raytide.io/tenant of a namespace "
    "names its tenant.",
)
@_setting(
    "etcd_image",
    "--etcd-image",
    default="",
    help=f"Image of the etcd container in the master pod of a Paddle job; default: {DEFAULT_ETCD_IMAGE}.",
)
@click.option(
    "--enable-metrics",
    envvar=_variable("--enable-metrics"),
    hidden=True,
    default=None,
    expose_value=False,
    is_flag=False,
    flag_value="true",
    callback=_reject_disabled_metrics,
)
@unsupported_options
def command(**fields: Any) -> None:
    """Run the operator (RayClusters and TrainingJobs) until it receives SIGTERM or SIGINT."""
    try:
        settings = Settings(**fields)
        settings.lease_timing()
    except ValueError as error:  # from pydantic or `lease_timing`: both name the setting
        raise click.UsageError(str(error)) from error

    from raytide.manager.main import run_operator  # noqa: PLC0415 - kopf is imported only when the operator really runs
    from raytide.runtime import logs  # noqa: PLC0415 - same
    from raytide.runtime.gc_tuning import tune_gc  # noqa: PLC0415 - same

    tune_gc()
    logs.install(logging.getLevelNamesMapping()[settings.log_level.upper()], settings.log_format)
    for name in variables_without_effect(os.environ):
        log.warning("environment variable %s has no effect, see docs/compatibility.md", name)
    for switched in gates_without_effect(settings.feature_gates):
        log.warning("feature gate %s has no effect, see docs/compatibility.md", switched)
    raise SystemExit(asyncio.run(run_operator(settings)))
