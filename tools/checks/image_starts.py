"""Check that the container image starts as in a hardened pod.

Operator and sidecar run with a read-only root and the service account of a pod, as the user of the image and as an arbitrary user of
group 0 (OpenShift). A start succeeds when the process connects to a listener in place of the API server or the GCS: it has then
imported all of its modules. Called by `make image` with the containers of a builder.
"""

import contextlib
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import machine_speed
from image_builders import Containers
from raytide_sandbox.certificates import make_certificates

USERS: Final = {"the image's user": (1000, 100), "an arbitrary user of group 0": (1000660000, 0)}
CONNECTS_WITHIN_S: Final = 60.0
ENDS_WITHIN_S: Final = 20.0
SIDECAR_STARTS_WITHIN_S: Final = 1.5
"""Limit for the CPU time of the start, or where that is unknown, for the time until the connection; multiplied on slower machines."""
ATTEMPTS: Final = 5
"""The fastest start counts."""
LOCALHOST: Final = "127.0.0.1"


class StartError(Exception):
    """A process did not connect; the message has its last lines of output."""


@dataclass(frozen=True, order=True, slots=True)
class Start:
    """Duration of a start until the connection."""

    bar_s: float
    """CPU time of all its processes, or `took_s` where that is unknown."""
    took_s: float


@contextmanager
def service_account() -> Iterator[Path]:
    """The folder of a service account, as a kubelet mounts it, readable for all users."""
    with tempfile.TemporaryDirectory(prefix="raytide-account-") as name:
        folder = Path(name)
        (folder / "token").write_text("token")
        (folder / "namespace").write_text("default")
        (folder / "ca.crt").write_bytes(make_certificates(datetime.now(UTC), [LOCALHOST]).authority)
        folder.chmod(0o755)
        yield folder


def cpu_by_process(pid: int) -> dict[int, float]:
    """CPU seconds of a process and of each of its descendants, by their PIDs."""
    used: dict[int, float] = {}
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            fields = stat.read_text().rpartition(") ")[2].split()
            parents[int(stat.parent.name)] = int(fields[1])
            used[int(stat.parent.name)] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    family = {pid}
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    return {member: used[member] for member in family if member in used}


def connect_once(containers: Containers, user: tuple[int, int], environ: Mapping[str, str], *arguments: str) -> Start:
    """Start a container and wait until it connects to `{port}` in its arguments or environment; raises StartError."""
    with socket.create_server((LOCALHOST, 0)) as listener, tempfile.TemporaryFile("w+") as log:
        listener.settimeout(0.2)
        port = str(listener.getsockname()[1])
        given = {name: value.format(port=port) for name, value in environ.items()}
        command = containers.command(user, given, *(word.format(port=port) for word in arguments))
        began = time.monotonic()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            while time.monotonic() < began + CONNECTS_WITHIN_S and process.poll() is None:
                with contextlib.suppress(TimeoutError):
                    listener.accept()[0].close()
                    took_s = time.monotonic() - began
                    used_s = sum(cpu_by_process(process.pid).values())
                    return Start(used_s if containers.has_own_processes else took_s, took_s)
        finally:
            members = cpu_by_process(process.pid)
            _end(process, containers)
            _wait_for_end(members)
        log.seek(0)
        lines = log.read().strip().splitlines()[-10:]
        raise StartError("\n".join([f"raytide {arguments[0]} did not connect, its last lines are:", *lines]))


def _end(process: subprocess.Popen[bytes], containers: Containers) -> None:
    process.send_signal(containers.end_signal)
    try:
        process.wait(ENDS_WITHIN_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _wait_for_end(members: Iterable[int]) -> None:
    """Wait until these processes have ended; raises StartError after `ENDS_WITHIN_S`."""
    ends = time.monotonic() + ENDS_WITHIN_S
    while left := [member for member in members if Path("/proc", str(member)).exists()]:
        if time.monotonic() > ends:
            raise StartError(f"processes of the container outlive it: {left}")
        time.sleep(0.02)


def start_operator(containers: Containers, user: tuple[int, int]) -> Start:
    """Start the operator, which connects to the API server."""
    environ = {"KUBERNETES_SERVICE_HOST": LOCALHOST, "KUBERNETES_SERVICE_PORT": "{port}", "POD_NAMESPACE": "default"}
    endpoints = ("--metrics-addr", "0", "--health-probe-bind-address", "0")
    return connect_once(containers, user, environ, "operator", *endpoints)


def start_sidecar(containers: Containers, user: tuple[int, int]) -> Start:
    """Start the autoscaler, which connects to the GCS."""
    environ = {
        "KUBERNETES_SERVICE_HOST": LOCALHOST,
        "KUBERNETES_SERVICE_PORT_HTTPS": "1",
        "AUTOSCALER_METRIC_PORT": "0",
        "RAYTIDE_AUTOSCALER_HEALTH_PORT": "0",
    }
    cluster = ("--cluster-name", "demo", "--cluster-namespace", "default", "--gcs-address", f"{LOCALHOST}:{{port}}")
    return connect_once(containers, user, environ, "autoscaler", *cluster)


def problems(containers: Containers) -> tuple[list[str], Start]:
    """Failed starts, and the fastest start of the sidecar."""
    found, fastest = [], Start(float("inf"), float("inf"))
    for name, user in USERS.items():
        for start in (start_operator, start_sidecar):
            try:
                measured = start(containers, user)
            except StartError as error:
                found.append(f"as {name} ({user[0]}:{user[1]}): {error}")
                continue
            if start is start_sidecar:
                fastest = min(fastest, measured)
    attempts, bar_s = len(USERS), SIDECAR_STARTS_WITHIN_S * machine_speed.slowness()
    while not found and fastest.bar_s > bar_s and attempts < ATTEMPTS:
        attempts += 1
        fastest = min(fastest, start_sidecar(containers, USERS["the image's user"]))
        bar_s = max(bar_s, SIDECAR_STARTS_WITHIN_S * machine_speed.slowness())
    if not found and fastest.bar_s > bar_s:
        found.append(f"the sidecar's start takes {fastest.bar_s:.2f} s, more than {bar_s:.2f} s on this machine")
    return found, fastest
