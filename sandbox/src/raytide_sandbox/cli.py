"""`raytide sandbox`: start, stop and inspect the sandbox.

The commands `raytide sandbox up, down, status, kubeconfig, logs` (and `serve`, which `up` starts) take options, print
short answers and exit with 0 when the requested state is reached. They make no decisions: raytide_sandbox/daemonize.py starts
and stops, state_dir.py holds the state directory, raytide_sandbox/main.py runs the cluster. Modules are imported by the command
that needs them, so that `status` is fast.
"""

import functools
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from raytide_sandbox.state_dir import DIRECTORY_VARIABLE, AlreadyRunningError, Record, StateDirectory

_FOLLOW_S: Final = 0.2
_API_HELP: Final = (
    "API server: the built-in emulator, or a real control plane (from make tools, or KUBEBUILDER_ASSETS)."
)


@click.group("sandbox", context_settings={"help_option_names": ["--help", "-h"]})
def command() -> None:
    """A Kubernetes cluster on this machine, with pods as processes.

    `down` deletes the cluster with all of its objects.
    """


def _state_option(function: Callable[..., Any]) -> Callable[..., Any]:
    @click.option(
        "--state-dir",
        type=click.Path(file_okay=False, path_type=Path),
        help=f"Directory for the files of the sandbox.  [default: ${DIRECTORY_VARIABLE} or ~/.cache/raytide/sandbox]",
    )
    @functools.wraps(function)
    def with_state(*, state_dir: Path | None, **options: Any) -> Any:
        found = StateDirectory(state_dir.absolute()) if state_dir else StateDirectory.default(os.environ)
        return function(state=found, **options)

    return with_state


def _cluster_options(function: Callable[..., Any]) -> Callable[..., Any]:
    isolation = click.Choice(["auto", "ns", "plain"])
    for option in (
        click.option("--audit/--no-audit", "has_audit", default=False, help="Write an audit log (--api kubernetes)."),
        click.option("--api", type=click.Choice(["embedded", "kubernetes"]), default="embedded", help=_API_HELP),
        click.option(
            "--timeout",
            "timeout_s",
            metavar="SECONDS",
            type=click.FloatRange(0.1),
            default=600.0,
            show_default=True,
            help="Longest start; a part that makes no progress for a minute ends it sooner.",
        ),
        click.option("--crds/--no-crds", "has_crds", default=True, show_default=True, help="Install Raytide's CRDs."),
        click.option(
            "--port",
            type=click.IntRange(0, 65535),
            default=0,
            help="Port of the API server on 127.0.0.1; 0: any free port.",
        ),
        click.option(
            "--isolation",
            type=isolation,
            default="auto",
            help="Isolation of pods: ns: Linux namespaces; plain: none; auto: ns if possible.",
        ),
        click.option(
            "--image",
            "images",
            multiple=True,
            metavar="NAME=FOLDER",
            help="Run containers of image NAME in the Python environment FOLDER. Repeatable.",
        ),
        click.option(
            "--node-memory", default="32Gi", show_default=True, help="Memory of each node, for scheduling only."
        ),
        click.option("--node-cpu", default="8", show_default=True, help="CPUs of each node, for scheduling only."),
        click.option("--nodes", type=click.IntRange(1, 100), default=3, show_default=True, help="Number of nodes."),
    ):
        function = option(function)
    return function


def _checked_quantities(options: dict[str, Any]) -> None:
    from raytide.api.quantity import QuantityError, to_millis  # noqa: PLC0415 - only `up` needs it

    for name in ("node_cpu", "node_memory"):
        try:
            if to_millis(options[name]) > 0:
                continue
            reason = "must be more than 0"
        except QuantityError as error:
            reason = str(error)
        raise click.BadParameter(reason, param_hint=f"--{name.replace('_', '-')}")


def _checked_images(given: tuple[str, ...]) -> tuple[str, ...]:
    """Make paths absolute, because the sandbox runs in another directory."""
    from raytide_sandbox.container_runtime.images import parse_given  # noqa: PLC0415 - only `up` needs it

    try:
        return tuple(f"{name}={folder}" for name, folder in parse_given(given).items())
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--image") from None


@command.command(short_help="start the sandbox in the background")
@_state_option
@_cluster_options
def up(state: StateDirectory, **options: Any) -> None:
    """Start the sandbox in the background and wait until it is ready.

    CPU and memory of nodes are for scheduling only; limits are not enforced. Exit code 0: a sandbox is running, even if it
    was running before, 1: the sandbox cannot be started, 2: wrong usage.
    """
    from raytide_sandbox import daemonize  # noqa: PLC0415 - only `up` and `down` start and end things

    _checked_quantities(options)
    options["images"] = _checked_images(options["images"])
    if options["has_audit"] and options["api"] != "kubernetes":
        raise click.UsageError("--audit needs --api kubernetes: the emulator writes no audit log")
    began = time.monotonic()
    leftover = state.read_record()
    try:
        if leftover is not None and not state.is_claimed():
            daemonize.stop(state)
            click.echo(f"Removed leftovers of a sandbox that was killed or crashed (process {leftover.pid}).", err=True)
        record = daemonize.start(daemonize.Settings(**options), state)
    except AlreadyRunningError:
        _print_running(state)
        return
    except daemonize.LaunchError as error:
        raise click.ClickException(str(error)) from None
    except OSError as error:
        raise click.ClickException(
            f"cannot use {state.path}: {error.strerror}; choose another with --state-dir"
        ) from None
    took_s = time.monotonic() - began
    click.echo(
        f"The sandbox is up after {took_s:.1f} s: {record.server}, {_nodes(record)}, isolation {record.isolation}."
    )
    click.echo(f"  export KUBECONFIG={state.kubeconfig}")
    if record.audit_log:
        click.echo(f"  Audit log: {record.audit_log}")


def _print_running(state: StateDirectory) -> None:
    record = state.read_record()
    where = f"{record.server} (process {record.pid}, {_nodes(record)})" if record else "it is starting"
    click.echo(f"A sandbox is already running: {where}. Nothing was changed; to stop it: raytide sandbox down")


def _nodes(record: Record) -> str:
    return f"{record.nodes} node{'' if record.nodes == 1 else 's'}"


@command.command(short_help="stop the sandbox and delete all of its objects")
@_state_option
def down(state: StateDirectory) -> None:
    """Stop the sandbox and its pods, and delete all of its objects."""
    from raytide_sandbox import daemonize  # noqa: PLC0415 - only `up` and `down` start and end things

    try:
        was_running = daemonize.stop(state)
    except daemonize.LaunchError as error:
        raise click.ClickException(str(error)) from None
    click.echo("The sandbox is down." if was_running else "No sandbox is running.")


@command.command(short_help="show the sandbox and its pods")
@_state_option
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "yaml", "json"]),
    default="table",
    show_default=True,
    help="Output format.",
)
def status(state: StateDirectory, output: str) -> None:
    """Show the sandbox and its pods.

    Exit code 0: a sandbox is running, 1: no sandbox is running, or its API server does not answer, 2: wrong usage.
    """
    from raytide_sandbox.status_report import as_json, render, take, written  # noqa: PLC0415 - only `status` asks the API

    record = state.read_record()
    if output != "table":
        overview = take(state, record) if state.is_claimed() and record is not None else None
        click.echo(written(as_json(overview), output))
        sys.exit(0 if overview is not None and overview.error is None else 1)
    if not state.is_claimed():
        left = " An earlier one was killed or crashed; `up` and `down` remove its leftovers." if record else ""
        click.echo(f"No sandbox is running.{left} Start one with: raytide sandbox up")
        sys.exit(1)
    if record is None:
        click.echo("A sandbox is starting.")
        sys.exit(1)
    overview = take(state, record)
    render(overview)
    sys.exit(0 if overview.error is None else 1)


@command.command(short_help="print the kubeconfig of the sandbox, or its path")
@_state_option
@click.option("--path", "is_path", is_flag=True, help="Print the path of the file instead of its content.")
def kubeconfig(state: StateDirectory, *, is_path: bool) -> None:
    """Print the kubeconfig, or its path: `export KUBECONFIG=$(raytide sandbox kubeconfig --path)`."""
    if not state.is_claimed() or not state.kubeconfig.exists():
        raise click.ClickException("no sandbox is running; start one with: raytide sandbox up")
    click.echo(str(state.kubeconfig) if is_path else state.kubeconfig.read_text(), nl=is_path)


@command.command(short_help="print the log of the sandbox")
@_state_option
@click.option("-f", "--follow", is_flag=True, help="Follow the log until the sandbox ends.")
@click.option(
    "-n", "--lines", type=click.IntRange(0), default=200, show_default=True, help="Number of last lines to print."
)
def logs(state: StateDirectory, *, follow: bool, lines: int) -> None:
    """Print the log of the sandbox itself; `kubectl logs` prints those of pods."""
    if not state.log.exists():
        raise click.ClickException(f"no log in {state.path}: no sandbox has run with this state directory")
    with state.log.open(errors="replace") as log:
        tail = log.readlines()[-lines:] if lines else []
        click.echo("".join(tail), nl=False)
        while follow:
            is_over = not state.is_claimed()
            more = log.read()
            click.echo(more, nl=False)
            if is_over:
                return
            if not more:
                time.sleep(_FOLLOW_S)


@command.command(hidden=True)
@_state_option
@_cluster_options
@click.option("--ready-fd", type=int, help="File descriptor that is written to when the sandbox is ready.")
def serve(state: StateDirectory, ready_fd: int | None, **options: Any) -> None:
    """Run the sandbox in the foreground."""
    from raytide_sandbox.daemonize import Settings  # noqa: PLC0415 - same
    from raytide_sandbox.main import serve as run  # noqa: PLC0415 - the cluster is for its own process

    sys.exit(run(Settings(**options), state, ready_fd=ready_fd))
