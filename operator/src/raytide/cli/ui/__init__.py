"""`raytide ui`: a page that shows the workloads of a cluster, drawn in the browser.

Runs on the user's machine as `kubectl proxy` does: it listens on 127.0.0.1 only, reads with the rights of the kubeconfig's user,
changes nothing, and keeps a history of at most six hours in bounded memory. This module reads arguments; feed.py follows the
cluster, app.py answers requests, guard.py decides which ones, what_if.py computes the effect of a YAML, static/ is the page.
"""

import asyncio
import signal
import sys
from pathlib import Path
from typing import Any, Final

import click

from raytide.cli.connection_options import connection_options
from raytide.cli.sharing_options import sharing_config, sharing_options

PORT: Final = 8250
"""Not assigned by IANA, and not a port of Ray (6379, 8265, 10001), of the operator (8080, 8081) or of Kubernetes."""


@click.command("ui", short_help="show all workloads in the browser, with their history")
@click.option("-n", "--namespace", help="Namespace to show.  [default: that of the kubeconfig context, or `default`]")
@click.option("-A", "--all-namespaces", is_flag=True, help="Show all namespaces.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=PORT,
    show_default=True,
    help="Port of 127.0.0.1 to listen on; 0 takes a free one.",
)
@click.option("--open", "is_opened", is_flag=True, help="Open the page in the default browser.")
@connection_options
@sharing_options
def command(
    *,
    namespace: str | None,
    all_namespaces: bool,
    port: int,
    is_opened: bool,
    kubeconfig: Path | None,
    context: str | None,
    **sharing: Any,
) -> None:
    """Show RayClusters and TrainingJobs in the browser: wanted and ready workers over time, and why they differ. Changes nothing."""
    config = sharing_config(**sharing)
    from raytide.cli.columns import printable  # noqa: PLC0415 - `--help` needs none of these
    from raytide.cli.ui.serve import serve  # noqa: PLC0415 - same
    from raytide.client.workload_reader import ReadError, is_name  # noqa: PLC0415 - same

    if namespace and all_namespaces:
        raise click.UsageError("--namespace cannot be combined with --all-namespaces")
    if namespace and not is_name(namespace):
        raise click.UsageError(f"--namespace: {printable(namespace)!r} is not a name in Kubernetes")
    where = "" if all_namespaces else namespace
    try:
        asyncio.run(serve(where, kubeconfig, context, port=port, is_opened=is_opened, sharing=config))
    except ReadError as error:
        raise click.ClickException(printable(str(error))) from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise click.ClickException(f"127.0.0.1:{port}: {reason}; --port takes another port, 0 a free one") from error
    except KeyboardInterrupt:
        click.echo(err=True)
    except asyncio.CancelledError:
        sys.exit(128 + signal.SIGTERM)
