"""`raytide autoscaler`: run the autoscaler of one RayCluster, as the second container of its head pod.

Flags are spelled like those of `ray kuberay-autoscaler`, so that KubeRay's start command works (AS §1.1). It checks
flags and environment, then supervises a child process that does the work (autoscaler/sidecar/supervisor.py): no heavy
imports here.
"""

import os
import sys

import click

from raytide.api.host_port import split_host_port
from raytide.autoscaler.sidecar.settings import SettingError, read_settings
from raytide.autoscaler.sidecar.supervisor import Supervisor


@click.command(short_help="run the autoscaler of a RayCluster in its head pod")
@click.option(
    "--cluster-name", required=True, help="name of the RayCluster (in KubeRay's start command: RAY_CLUSTER_NAME)"
)
@click.option(
    "--cluster-namespace",
    required=True,
    help="namespace of the RayCluster (in KubeRay's start command: RAY_CLUSTER_NAMESPACE)",
)
@click.option("--gcs-address", default="", help="host:port of the GCS  [default: port 6379 of this pod]")
def command(cluster_name: str, cluster_namespace: str, gcs_address: str) -> None:
    """Scale the worker groups of a RayCluster to the resource demand that its GCS reports."""
    for flag, value in (("--cluster-name", cluster_name), ("--cluster-namespace", cluster_namespace)):
        if not value.strip() or "$(" in value:
            raise click.UsageError(
                f"{flag} is {value!r}: the environment variable in its place is not set in the container"
            )
    if gcs_address and not _is_address(gcs_address):
        raise click.UsageError(f"--gcs-address is {gcs_address!r}: set host:port, or [address]:port for IPv6")
    try:
        read_settings(os.environ)
    except SettingError as error:
        raise click.UsageError(str(error)) from error
    child = (
        sys.executable,
        "-P",
        "-m",
        "raytide.autoscaler.sidecar.main",
        cluster_name,
        cluster_namespace,
        gcs_address,
    )
    raise SystemExit(Supervisor(child, report=lambda line: click.echo(line, err=True)).run())


def _is_address(text: str) -> bool:
    try:
        return bool(split_host_port(text)[0])
    except ValueError:
        return False
