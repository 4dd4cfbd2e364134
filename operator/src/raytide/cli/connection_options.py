"""Options of the commands that read a running cluster."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

_Function = TypeVar("_Function", bound=Callable[..., None])


def connection_options(command: _Function) -> _Function:
    """Add `--kubeconfig` and `--context`, as kubectl has them."""
    context = click.option("--context", help="Context of the kubeconfig.  [default: its current context]")
    kubeconfig = click.option(
        "--kubeconfig",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="Kubeconfig file.  [default: $KUBECONFIG, the service account of the pod, or ~/.kube/config]",
    )
    return kubeconfig(context(command))
