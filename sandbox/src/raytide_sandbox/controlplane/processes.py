"""Control-plane processes: a real Kubernetes control plane on this machine.

Input: a directory, the programs and settings. Starts etcd, kube-apiserver, kube-controller-manager and kube-scheduler
on loopback and returns when objects can be created, or raises ControlPlaneError with the last log lines of the component
that failed. A second start in the same directory continues with the same objects, users and, if they are free, ports;
no component outlives the process that started it. Synchronous, for fixtures, benchmarks and the sandbox alike; may be
used from any thread.
"""

import http.client
import signal
import ssl
import threading
import time
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from raytide_sandbox.certificates import Identity
from raytide_sandbox.controlplane.binaries import check_parts, find_binary, program
from raytide_sandbox.controlplane.component import Component, ControlPlaneError
from raytide_sandbox.controlplane.files import ADMIN, CONTROLLERS, SCHEDULER, PlaneFiles, utc_now
from raytide_sandbox.controlplane.flags import APISERVER, ETCD, PEER, PlaneSettings, arguments
from raytide_sandbox.controlplane.interface import STALLED_S
from raytide_sandbox.controlplane.ports import HOST, Ports
from raytide_sandbox.state_dir import AlreadyRunningError, StateDirectory, StateLock

__all__ = ["ControlPlane", "ControlPlaneError", "PlaneSettings", "find_binary"]

START_TIMEOUT_S: Final = 600.0
GENTLE_END_S: Final = {SCHEDULER: 0.5, CONTROLLERS: 0.5, APISERVER: 2.5, ETCD: 1.0}
"""Seconds that each may take to end after SIGTERM: a SIGKILL then loses nothing that was written."""
SERVER_NAMES: Final = (
    HOST,
    "localhost",
    "10.96.0.1",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)
_HEALTH: Final = {ETCD: "/health", APISERVER: "/readyz", CONTROLLERS: "/healthz", SCHEDULER: "/healthz"}
_DEFAULT_ACCOUNT: Final = "/api/v1/namespaces/default/serviceaccounts/default"
_STARTS_FOR_A_PORT: Final = 5
_POLL_S: Final = 0.05
_ANSWER_S: Final = 5.0


class Deadline:
    """The end of a start."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._ends_at = time.monotonic() + timeout_s

    @property
    def has_passed(self) -> bool:
        """Whether `timeout_s` are over."""
        return time.monotonic() > self._ends_at


class ControlPlane:
    """One control plane in one directory; a context manager that starts and stops it."""

    def __init__(
        self,
        directory: Path,
        binary: Path,
        settings: PlaneSettings = PlaneSettings(),  # noqa: B008 - frozen
        *,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        """`binary` is one program for all components or a folder with one for each; nothing is changed yet."""
        self.directory = directory.absolute()
        self.binary = binary.absolute()
        self.settings = settings
        self._files = PlaneFiles(self.directory, now)
        wanted = {APISERVER: settings.port} if settings.port else {}
        self._ports = Ports(self.directory / "ports.json", wanted=wanted)
        self._components = {name: Component(name, self._files.logs / f"{name}.log") for name in settings.parts}
        self._asked_for: set[str] = set()
        self._claim: StateLock | None = None
        self._is_stopping = threading.Event()
        self._lock = threading.RLock()

    # --- access ----------------------------------------------------------------------------------------------------------
    @property
    def server(self) -> str:
        """The API server's URL."""
        return f"https://{HOST}:{self._ports[APISERVER]}"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig, with a client certificate."""
        return self._files.kubeconfig(ADMIN)

    @property
    def admin_token(self) -> str:
        """A bearer token of the administrator."""
        return self._files.admin_token

    @property
    def authority(self) -> bytes:
        """The authority that signed the API server's certificate, as PEM."""
        return self._files.authority.certificate

    @property
    def audit_log(self) -> Path | None:
        """One JSON object per line, complete when the request's response is; None unless the settings enable it."""
        return self._files.audit_log if self.settings.has_audit else None

    def issue_client(self, user: str, group: str = "") -> Identity:
        """A client certificate for any user, such as `system:node:a` of the group `system:nodes`."""
        return self._files.issue_client(user, group)

    def pid(self, component: str) -> int | None:
        """The component's process id while it runs."""
        return self._components[component].pid

    def log(self, component: str) -> Path:
        """The component's log since the last start of the control plane."""
        return self._components[component].log

    # --- lifecycle -------------------------------------------------------------------------------------------------------
    def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start every part; returns when objects can be created, with controllers also pods.

        Waits up to `timeout_s` while the part that is starting makes progress; raises ControlPlaneError.
        """
        with self._lock:
            if self._claim is not None:
                raise ControlPlaneError(f"the control plane in {self.directory} runs already")
            check_parts(self.binary, self.settings.parts)
            self._is_stopping.clear()
            self._take_directory()
            try:
                self._start_all(Deadline(timeout_s))
            except BaseException:
                self.stop()
                raise

    def stop(self) -> None:
        """Stop every part and release the directory; does nothing if nothing runs."""
        self._is_stopping.set()
        with self._lock:
            self._asked_for.clear()
            self._end_together([SCHEDULER, CONTROLLERS])
            self._end_together([APISERVER])
            self._end_together([ETCD])
            if self._claim is not None:
                self._claim.release()
                self._claim = None

    def kill(self, component: str) -> None:
        """SIGKILL one component, as a crash would; returns when it is gone."""
        with self._lock:
            self._asked_for.discard(component)
            self._components[component].kill()

    def start_component(self, component: str) -> None:
        """Start one component again, on the same port; returns when it is ready."""
        with self._lock:
            if self._claim is None:
                raise ControlPlaneError(f"the control plane in {self.directory} does not run")
            self._launch(component)
            self._await_ready(component, Deadline(START_TIMEOUT_S))

    def check(self) -> None:
        """Raise ControlPlaneError if a component has ended unexpectedly."""
        for name in sorted(self._asked_for):
            component = self._components[name]
            if not component.is_running and name in self._asked_for:
                raise component.error(component.how_it_ended())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    # --- starting --------------------------------------------------------------------------------------------------------
    def _take_directory(self) -> None:
        place = StateDirectory(self.directory)
        place.create()
        try:
            self._claim = place.claim()
        except AlreadyRunningError:
            raise ControlPlaneError(f"another control plane runs in {self.directory}") from None

    def _start_all(self, deadline: Deadline) -> None:
        self._files.prepare([*SERVER_NAMES, *self.settings.hosts])
        for component in self._components.values():
            if component.log.exists():
                component.log.replace(component.log.with_suffix(".log.1"))
        for name in (ETCD, APISERVER):
            self._start_on_free_port(name, deadline)
        others = [name for name in self._components if name not in {ETCD, APISERVER}]
        for name in others:
            self._choose_ports(name)
            self._launch(name)
        for name in others:
            if not self._is_up(name, deadline):
                self._start_on_free_port(name, deadline)
        if CONTROLLERS in self._components:
            self._await(lambda: self._ask(APISERVER, _DEFAULT_ACCOUNT), CONTROLLERS, deadline)

    def _start_on_free_port(self, name: str, deadline: Deadline) -> None:
        """Start it; if another program takes the port between check and bind, the next one is tried."""
        for _ in range(_STARTS_FOR_A_PORT):
            self._choose_ports(name)
            self._launch(name)
            if self._is_up(name, deadline):
                return
        raise self._components[name].error("found no free port")

    def _choose_ports(self, name: str) -> None:
        self._ports.choose(name)
        if name == ETCD:
            self._ports.choose(PEER)
        if name == APISERVER:
            self._files.write_kubeconfigs(self.server)

    def _is_up(self, name: str, deadline: Deadline) -> bool:
        """Wait until it is ready; False if its port was taken."""
        try:
            self._await_ready(name, deadline)
        except ControlPlaneError:
            if not self._components[name].met_taken_address:
                raise
            self._ports.give_up(name)
            if name == ETCD:
                self._ports.give_up(PEER)
            return False
        return True

    def _launch(self, name: str) -> None:
        command = [*program(self.binary, name), *arguments(name, self._files, self._ports, self.settings)]
        variables = {"GOGC": str(self.settings.gogc)}
        self._components[name].start(command, directory=self._files.logs, variables=variables)
        self._asked_for.add(name)

    # --- waiting ---------------------------------------------------------------------------------------------------------
    def _await_ready(self, name: str, deadline: Deadline) -> None:
        self._await(lambda: self._ask(name, _HEALTH[name]), name, deadline)

    def _await(self, is_so: Callable[[], bool], name: str, deadline: Deadline) -> None:
        """Wait until `is_so`; raises ControlPlaneError when the component ends or stalls, at the deadline, or after `stop`."""
        component = self._components[name]
        activity, active_at = component.activity, time.monotonic()
        while not is_so():
            if not component.is_running:
                raise component.error(f"{component.how_it_ended()} while starting")
            if self._is_stopping.is_set():
                raise ControlPlaneError(f"the control plane was stopped before {name} was ready")
            if deadline.has_passed:
                raise component.error(f"was not ready within {deadline.timeout_s:g} s")
            if activity != (activity := component.activity):
                active_at = time.monotonic()
            elif time.monotonic() - active_at > STALLED_S:
                raise component.error(f"is not ready, and has neither used a processor nor logged for {STALLED_S:g} s")
            time.sleep(_POLL_S)

    def _ask(self, name: str, path: str) -> bool:
        """Whether the component answers 200 to a GET."""
        client = http.client.HTTPSConnection(HOST, self._ports[name], timeout=_ANSWER_S, context=self._trust(name))
        headers = {"Authorization": f"Bearer {self.admin_token}"} if name == APISERVER else {}
        try:
            client.request("GET", path, headers=headers)
            return client.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            client.close()

    def _trust(self, name: str) -> ssl.SSLContext:
        if name != ETCD:
            return ssl.create_default_context(cadata=self.authority.decode())
        context = ssl.create_default_context(cafile=self._files.file("storage-ca.crt"))
        context.load_cert_chain(self._files.file("storage-client.crt"), self._files.file("storage-client.key"))
        return context

    # --- ending ----------------------------------------------------------------------------------------------------------
    def _end_together(self, names: Iterable[str]) -> None:
        ending = [self._components[name] for name in names if name in self._components]
        for component in ending:
            component.send(signal.SIGTERM)
        for component in ending:
            component.end(GENTLE_END_S[component.name])
