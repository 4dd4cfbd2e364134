"""`raytide crds`: apply or print the CustomResourceDefinitions of this version.

`apply` is for upgrades: the chart runs it before the operator of a newer version starts, because helm does not upgrade CRDs.
`print` is for everything else that applies manifests. Exit code 1 with one line if the API server cannot be reached or
rejects a definition.
"""

import asyncio
from pathlib import Path

import click

from raytide.cli.columns import printable
from raytide.cli.output import encoded, output_option


@click.group("crds", short_help="apply or print the CustomResourceDefinitions of this version")
def command() -> None:
    """CustomResourceDefinitions of RayClusters and TrainingJobs, as this version needs them."""


@command.command("print", short_help="print the CustomResourceDefinitions as YAML")
def print_crds() -> None:
    """Print the CustomResourceDefinitions as YAML, for `kubectl apply --server-side -f -`."""
    from raytide.kube.crds import crd_texts  # noqa: PLC0415 - imported when needed, as commands are

    click.echo("---\n".join(crd_texts()), nl=False)


@command.command("apply", short_help="create or upgrade the CustomResourceDefinitions")
@click.option(
    "--kubeconfig",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Kubeconfig file.  [default: $KUBECONFIG, the service account of the pod, or ~/.kube/config]",
)
@click.option("--context", help="Context of the kubeconfig.  [default: its current context]")
@output_option()
def apply(kubeconfig: Path | None, context: str | None, output: str) -> None:
    """Create or upgrade the CustomResourceDefinitions by server-side apply, and wait until the API server serves the kinds.

    Exit code 0: both kinds are served, 1: the API server cannot be reached or rejects a definition, 2: wrong usage.
    """
    applied: list[str] = []
    error = asyncio.run(_apply(kubeconfig, context, applied, is_told=output == "text"))
    if output != "text":
        click.echo(encoded(output, {"applied": applied, "error": error}))
    if error:
        raise click.ClickException(printable(error))


async def _apply(kubeconfig: Path | None, context: str | None, applied: list[str], *, is_told: bool) -> str:
    """The error that ended it, or an empty text; `applied` receives the name of each definition that is served, before any error.

    Each is printed when it is served, if that is asked for.
    """
    from raytide.api.constants import VERSION  # noqa: PLC0415 - imported when needed, as commands are
    from raytide.api.errors import ApiStatusError, ApiUnavailableError  # noqa: PLC0415 - same
    from raytide.kube.client import Client  # noqa: PLC0415 - same
    from raytide.kube.crds import apply_crds, load_crds  # noqa: PLC0415 - same
    from raytide.kube.credentials import ClientConfigError  # noqa: PLC0415 - same
    from raytide.kube.kubeconfig import connect  # noqa: PLC0415 - same
    from raytide.runtime.clock import Clock  # noqa: PLC0415 - same

    clock = Clock()
    try:
        transport = await connect(kubeconfig, context=context)
        try:
            client = Client(transport, clock=clock, version=VERSION, timeout_s=30.0)
            async for name in apply_crds(client, load_crds(), clock=clock):
                applied.append(name)
                if is_told:
                    click.echo(f"customresourcedefinition.apiextensions.k8s.io/{name} applied")
        finally:
            await transport.close()
    except (ClientConfigError, ApiStatusError, ApiUnavailableError) as error:
        return str(error)
    return ""
