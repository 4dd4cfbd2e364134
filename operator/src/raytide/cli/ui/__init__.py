"""`raytide ui`: a page that shows the workloads of a cluster, drawn in the browser.

Runs on the user's machine as `kubectl proxy` does: it listens on 127.0.0.1 only, reads with the rights of the kubeconfig's user,
changes nothing, and keeps a history of at most six hours in bounded memory. With `--auth kubernetes` it is a server that many use,
as the chart runs it: each caller signs in with a token of the API server and sees what that token may list. This module reads
arguments; feed.py and feeds.py follow the cluster, app.py answers requests, guard.py and access.py decide which ones, what_if.py
computes the effect of a YAML, static/ is the page.
"""

import asyncio
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from raytide.api.host_port import join_host_port
from raytide.cli.connection_options import connection_options
from raytide.cli.sharing_options import sharing_config, sharing_options

if TYPE_CHECKING:
    from raytide.cli.ui.serve import Certificate

HOST: Final = "127.0.0.1"
_FILE: Final = click.Path(path_type=Path)
PORT: Final = 8250
"""Not assigned by IANA, and not a port of Ray (6379, 8265, 10001), of the operator (8080, 8081) or of Kubernetes."""
NEEDS_KUBERNETES: Final = (
    "--bind-address, --watch-namespace, --tls-cert-file and --tls-private-key-file need --auth kubernetes: "
    "with the printed token other users would read with your rights"
)
NEEDS_PRINTED: Final = (
    "--namespace, --all-namespaces and --open are for --auth printed: with --auth kubernetes each caller chooses a "
    "namespace on the page, and --watch-namespace limits the choice"
)


@click.command("ui", short_help="show all workloads in the browser, with their history")
@click.option("-n", "--namespace", help="Namespace to show.  [default: that of the kubeconfig context, or `default`]")
@click.option("-A", "--all-namespaces", is_flag=True, help="Show all namespaces.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=PORT,
    show_default=True,
    help="Port to listen on; 0 takes a free one.",
)
@click.option("--open", "is_opened", is_flag=True, help="Open the page in the default browser.")
@click.option(
    "--auth",
    type=click.Choice(["printed", "kubernetes"]),
    default="printed",
    show_default=True,
    help="How callers authenticate. `printed`: with the token printed at startup, and your permissions; "
    "`kubernetes`: each with a bearer token of the API server, and with the rights of that token.",
)
@click.option(
    "--bind-address",
    metavar="ADDRESS",
    default=HOST,
    show_default=True,
    help="Address to listen on, with `--auth kubernetes`; 0.0.0.0 for all of IPv4, :: for all of both families.",
)
@click.option(
    "--watch-namespace",
    metavar="NAME,...",
    default="",
    help="Namespaces to follow, with `--auth kubernetes`.  [default: all]",
)
@click.option(
    "--tls-cert-file", metavar="FILE", type=_FILE, help="Certificate to serve HTTPS with, with `--auth kubernetes`."
)
@click.option("--tls-private-key-file", metavar="FILE", type=_FILE, help="Private key of the certificate.")
@connection_options
@sharing_options
def command(
    *,
    namespace: str | None,
    all_namespaces: bool,
    port: int,
    is_opened: bool,
    auth: str,
    bind_address: str,
    watch_namespace: str,
    tls_cert_file: Path | None,
    tls_private_key_file: Path | None,
    kubeconfig: Path | None,
    context: str | None,
    **sharing: Any,
) -> None:
    """Show RayClusters and TrainingJobs in the browser: wanted and ready workers over time, and why they differ. Changes nothing."""
    config = sharing_config(**sharing)
    from raytide.cli.columns import printable  # noqa: PLC0415 - `--help` needs none of these
    from raytide.cli.ui.serve import serve, serve_callers  # noqa: PLC0415 - same
    from raytide.client.workload_reader import ReadError, is_name  # noqa: PLC0415 - same

    names = [name.strip() for name in watch_namespace.split(",") if name.strip()]
    if auth == "printed" and (bind_address != HOST or names or tls_cert_file or tls_private_key_file):
        raise click.UsageError(NEEDS_KUBERNETES)
    if auth == "kubernetes" and (namespace or all_namespaces or is_opened):
        raise click.UsageError(NEEDS_PRINTED)
    if namespace and all_namespaces:
        raise click.UsageError("--namespace cannot be combined with --all-namespaces")
    for flag, each in (("--namespace", namespace), *(("--watch-namespace", name) for name in names)):
        if each and not is_name(each):
            raise click.UsageError(f"{flag}: {printable(each)!r} is not a name in Kubernetes")
    certificate = _certificate(tls_cert_file, tls_private_key_file)
    where = "" if all_namespaces else namespace
    serving = (
        serve(where, kubeconfig, context, address=bind_address, port=port, is_opened=is_opened, sharing=config)
        if auth == "printed"
        else serve_callers(
            names, kubeconfig, context, address=bind_address, port=port, certificate=certificate, sharing=config
        )
    )
    try:
        asyncio.run(serving)
    except ReadError as error:
        raise click.ClickException(printable(str(error))) from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise click.ClickException(
            f"{printable(join_host_port(bind_address, port))}: {reason}; --port takes another port, 0 a free one"
        ) from error
    except KeyboardInterrupt:
        click.echo(err=True)
    except asyncio.CancelledError:
        sys.exit(128 + signal.SIGTERM)


def _certificate(certificate: Path | None, private_key: Path | None) -> "Certificate | None":
    """The certificate to serve with, if any; raises UsageError for one file alone."""
    if certificate is None and private_key is None:
        return None
    if certificate is None or private_key is None:
        raise click.UsageError("--tls-cert-file and --tls-private-key-file belong together: give both")
    from raytide.cli.ui.serve import Certificate  # noqa: PLC0415 - `--help` needs none of it

    return Certificate(certificate, private_key)
