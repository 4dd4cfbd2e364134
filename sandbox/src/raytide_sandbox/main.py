"""The sandbox's server process.

Claims the state directory, chooses the pod runtime and the API, runs the cluster until it is asked to stop, and removes
the files that are valid only while it runs. A failure ends the process with a one-line reason, sent to the waiting `up`
and logged; the kernel then ends all pods. Called by `raytide sandbox serve`.
"""

import asyncio
import errno
import logging
import os
import signal
import socket
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from raytide.api.constants import VERSION
from raytide_sandbox.cluster import Cluster, NodesNotReadyError, StoppedError
from raytide_sandbox.container_runtime.detect import Choice, choose_runtime
from raytide_sandbox.container_runtime.images import parse_given
from raytide_sandbox.container_runtime.interface import ContainerRuntimeError, Runtime
from raytide_sandbox.controlplane.component import ControlPlaneError
from raytide_sandbox.controlplane.embedded import EmbeddedPlane
from raytide_sandbox.controlplane.interface import Plane
from raytide_sandbox.daemonize import ALREADY_RUNNING, EMBEDDED, Settings, report_to_parent
from raytide_sandbox.kubeconfig import write_private
from raytide_sandbox.state_dir import AlreadyRunningError, Record, StateDirectory, start_ticks

HOST: Final = "127.0.0.1"

_log = logging.getLogger("raytide_sandbox")


class PortError(Exception):
    """The port cannot be opened; the text gives the reason and a remedy."""


def serve(settings: Settings, state: StateDirectory, *, ready_fd: int | None) -> int:
    """Run the sandbox until SIGTERM or SIGINT; returns the exit code. `ready_fd` receives the outcome of the start."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr)
    state.create()
    try:
        with state.claim():
            state.clear()
            try:
                asyncio.run(_serve(settings, state, ready_fd))
            finally:
                state.clear()
    except AlreadyRunningError:
        report_to_parent(ready_fd, error=ALREADY_RUNNING)
        return 1
    except (ControlPlaneError, PortError, ContainerRuntimeError, PermissionError) as error:
        _log.error("the sandbox ends: %s", error)
        report_to_parent(ready_fd, error=str(error))
        return 1
    except BaseException as error:
        leaf = _first_leaf(error)
        if isinstance(leaf, ControlPlaneError | NodesNotReadyError):
            _log.error("the sandbox ends: %s", leaf)
            report_to_parent(ready_fd, error=str(leaf), is_in_log=isinstance(leaf, NodesNotReadyError))
            return 1
        report_to_parent(ready_fd, error=f"the sandbox failed: {leaf!r}")
        raise
    _log.info("the sandbox has ended")
    return 0


async def _serve(settings: Settings, state: StateDirectory, ready_fd: int | None) -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    with open_port(settings.port) as listener:
        scratch = state.create_scratch()
        choice = await choose_runtime(
            settings.isolation, state_dir=scratch, now=now, given_images=parse_given(settings.images)
        )
        try:
            plane = _build_plane(settings, state, listener, choice.runtime, volumes=scratch / "v")
            cluster = Cluster(settings, choice.runtime, plane, directory=scratch / "k", now=now)
            await cluster.run(stopping, lambda: _announce(cluster, state, choice, ready_fd))
        except* StoppedError:
            pass
        finally:
            await choice.runtime.stop()


def _build_plane(
    settings: Settings, state: StateDirectory, listener: socket.socket, runtime: Runtime, *, volumes: Path
) -> Plane:
    """The API that the settings ask for; `listener` holds its port, which a real control plane opens itself."""
    if settings.api == EMBEDDED:
        return EmbeddedPlane(
            listener, node_address=runtime.node_address, has_crds=settings.has_crds, now=now, volumes=volumes
        )
    from raytide_sandbox.controlplane.kubernetes import KubernetesPlane  # noqa: PLC0415 - only where it is asked for

    listener.close()
    return KubernetesPlane(
        state.plane,
        runtime,
        scratch=state.scratch,
        port=settings.port,
        has_crds=settings.has_crds,
        has_audit=settings.has_audit,
        now=now,
    )


def _first_leaf(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _announce(cluster: Cluster, state: StateDirectory, choice: Choice, ready_fd: int | None) -> None:
    """Write the kubeconfig and the record, then report ready to the parent."""
    write_private(state.kubeconfig, cluster.kubeconfig())
    record = Record(
        pid=os.getpid(),
        start_ticks=start_ticks(os.getpid()) or 0,
        version=VERSION,
        server=cluster.plane.server,
        isolation=choice.runtime.mode.value,
        isolation_reason=choice.reason,
        nodes=cluster.settings.nodes,
        scratch=str(state.scratch),
        api=cluster.settings.api,
        audit_log=str(cluster.plane.audit_log or ""),
    )
    state.write_record(record)
    _log.info("ready: %s, isolation %s", record.server, choice.reason)
    report_to_parent(ready_fd, ready=True)


def open_port(port: int) -> socket.socket:
    """Open a listening socket on the loopback address; raises PortError."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            text = f"port {port} on {HOST} is in use by another program"
        else:
            text = f"port {port} on {HOST} cannot be opened: {error.strerror}"
        raise PortError(f"{text}; choose another with --port, or --port 0 for any free one") from None
    return listener


def now() -> datetime:
    """The current time in UTC; the sandbox's only clock."""
    return datetime.now(UTC)  # noqa: TID251 - this is it; the sandbox imports none of the operator's modules
