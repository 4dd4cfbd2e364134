"""`raytide autoscaler`: run the autoscaler of one RayCluster, as the second container of its head pod.

Flags are spelled as those of `ray kuberay-autoscaler`, so that KubeRay's start command is understood (AS §1.1). It checks
flags and environment, and then only watches over a child that does the work (autoscaler/supervisor.py): nothing heavy is
imported here.
"""

import os
import sys

import click

from raytide.autoscaler.settings import BadSetting, read_settings
from raytide.autoscaler.supervisor import Supervisor


@click.command(short_help="run the autoscaler of one RayCluster, beside its head")
@click.option("--cluster-name", required=True, help="name of the RayCluster (KubeRay: RAY_CLUSTER_NAME)")
@click.option("--cluster-namespace", required=True, help="its namespace (KubeRay: RAY_CLUSTER_NAMESPACE)")
@click.option("--gcs-address", default="", help="host:port of the GCS; default: this pod, port 6379")
def command(cluster_name: str, cluster_namespace: str, gcs_address: str) -> None:
    """Watch Ray's demand and set how many workers the RayCluster has."""
    for flag, value in (("--cluster-name", cluster_name), ("--cluster-namespace", cluster_namespace)):
        if not value.strip() or "$(" in value:
            raise click.UsageError(f"{flag} is {value!r}: the container lacks the variable that it stands for")
    if gcs_address and not gcs_address.rpartition(":")[2].isdigit():
        raise click.UsageError(f"--gcs-address is {gcs_address!r}: write host:port")
    try:
        read_settings(os.environ)
    except BadSetting as error:
        raise click.UsageError(str(error)) from error
    child = (sys.executable, "-m", "raytide.autoscaler.main", cluster_name, cluster_namespace, gcs_address)
    raise SystemExit(Supervisor(child, say=lambda line: click.echo(line, err=True)).run())
