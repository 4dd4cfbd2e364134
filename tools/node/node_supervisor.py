"""Supervisor of a node: starts the control plane and the programs of the node, and ends when one of them ends.

Runs in the namespaces of the node with the machine's files; containerd, kubelet, kube-proxy and CoreDNS run in the root of the node
(node_root.py). Reports once: that the node is Ready and DNS works, or the error. Images are imported while the control plane
starts. All programs end with this process. Started by node_init.py.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import node_config
import node_root
import node_store
import raytide_sandbox
from node_settings import NodeSettings, Report
from raytide_sandbox.container_runtime.netlink import Netlink
from raytide_sandbox.controlplane.component import Component, ControlPlaneError
from raytide_sandbox.controlplane.files import PlaneFiles, utc_now
from raytide_sandbox.controlplane.processes import ControlPlane, PlaneSettings
from raytide_sandbox.kubeconfig import build_kubeconfig, write_private

READY_S = 60.0
END_S = 10.0
RUNTIME = "containerd"
FULL_DISK_BYTES = 256 << 20
"""With less free space, errors are attributed to the full disk: etcd alone allocates 64 MiB."""
ENTER = Path(__file__).with_name("node_enter.py")
_POLL_S = 0.05
_CHECK_S = 1.0


class NodeError(Exception):
    """The node does not start, or one of its programs ended."""


class Supervisor:
    """The programs of one node."""

    def __init__(self, settings: NodeSettings) -> None:
        self.settings = settings
        self.config = settings.config
        self.plane = ControlPlane(
            settings.plane,
            settings.control_plane,
            PlaneSettings(
                has_audit=True,
                hosts=(node_config.NODE_ADDRESS,),
                apiserver_flags=node_config.apiserver_flags(),
                is_durable=False,
            ),
        )
        self._commands = node_config.commands(settings.config)
        self._programs = {name: Component(name, settings.logs / f"{name}.log") for name in self._commands}
        self._root = -1
        self._layers: list[Path] = []
        self._folder = settings.work / "var" / "lib" / "containerd"
        self._store = node_store.store_of(
            settings.stores, settings.kept_images, settings.config.snapshotter, settings.packages
        )
        self._seconds: list[str] = []

    def start(self) -> Report:
        """Start everything; raises NodeError, ControlPlaneError or OSError."""
        with self._timed("root and network"):
            node_root.prepare(self.settings.root)
            self._layers = node_store.prepare_folder(self._store, self._folder) if self._store.exists() else []
            mounts = {f"/var/lib/containerd/{layer}": self._store / layer for layer in self._layers}
            self._root = root_namespace(lambda: node_root.enter_new(self.settings.root, mounts))
            _set_up_network()
            self._write_configuration()
        with ThreadPoolExecutor() as threads:
            images = threads.submit(self._start_runtime)
            with self._timed("control plane"):
                self.plane.start()
            images.result()
        with self._timed("node"):
            self._write_identities()
            for name in ("kubelet", "kube-proxy"):
                self._launch(name)
            self._apply(node_config.dns_objects())
            self._launch("coredns")  # after its permissions: it retries a forbidden list with long back-off
            self._await_ready()
        audit_log = str(self.plane.audit_log)
        return Report(kubeconfig=str(self.plane.kubeconfig), audit_log=audit_log, seconds=", ".join(self._seconds))

    def check(self) -> None:
        """Raise NodeError or ControlPlaneError if a program has ended."""
        self.plane.check()
        for program in self._programs.values():
            if not program.is_running:
                raise program.error(program.how_it_ended())

    @contextmanager
    def _timed(self, part: str) -> Iterator[None]:
        started = time.monotonic()
        yield
        self._seconds.append(f"{part} {time.monotonic() - started:.1f} s")

    # --- files -----------------------------------------------------------------------------------------------------------
    def _write_configuration(self) -> None:
        folder = self.settings.root.configuration
        for name, text in node_config.files(self.config).items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        for name, target in node_config.iptables_programs(self.settings.packages).items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).symlink_to(target)

    def _write_identities(self) -> None:
        """Write a certificate per program: of the kubelet for the node authorizer, of the others for their RBAC roles."""
        folder, name = self.settings.root.configuration, self.config.name
        users = {
            "kubelet": (f"system:node:{name}", "system:nodes"),
            "kube-proxy": ("system:kube-proxy", ""),
            "coredns": (node_config.DNS_USER, ""),
        }
        for program, (user, group) in users.items():
            identity = self.plane.issue_client(user, group)
            text = build_kubeconfig(server=self.plane.server, authority=self.plane.authority, identity=identity)
            write_private(folder / f"{program}.kubeconfig", text)
        authority = PlaneFiles(self.settings.plane, utc_now).authority
        server = authority.issue_server(utc_now(), f"system:node:{name}", [name, node_config.NODE_ADDRESS])
        write_private(folder / "kubelet.crt", server.certificate.decode())
        write_private(folder / "kubelet.key", server.key.decode())
        (folder / "ca.crt").write_bytes(self.plane.authority)

    # --- programs --------------------------------------------------------------------------------------------------------
    def _enter(self, command: list[str]) -> list[str]:
        """The command line that runs a command in the root of the node."""
        namespace = f"/proc/{os.getpid()}/fd/{self._root}"
        return [sys.executable, "-I", "-S", str(ENTER), namespace, *command]

    @property
    def _variables(self) -> dict[str, str]:
        packages = str(Path(raytide_sandbox.__path__[0]).parent)
        return {"PATH": self.config.path, "HOME": "/root", "TMPDIR": "/tmp", "RAYTIDE_PACKAGES": packages}  # noqa: S108 - the node's own

    def _launch(self, name: str) -> None:
        command = self._enter(self._commands[name])
        self._programs[name].start(command, directory=self.settings.logs, variables=self._variables)

    def _start_runtime(self) -> None:
        """Start containerd with all images; if there is no store with the kept images, create it before."""
        if not self._layers:
            with self._timed("kept images"):
                self._launch_runtime()
                self._import(self.settings.kept_images)
                self._programs[RUNTIME].end(END_S)
                node_store.keep(self._folder, self._store)
        with self._timed("containerd"):
            self._launch_runtime()
        with self._timed("other images"):
            self._import(self.settings.images)

    def _launch_runtime(self) -> None:
        self._launch(RUNTIME)
        runtime = self._programs[RUNTIME]
        path = f"/proc/{runtime.pid}/root{node_config.RUNTIME_SOCKET}"
        self._await(lambda: accepts_connections(path), runtime, "accepts no connections")

    def _import(self, archives: Iterable[Path]) -> None:
        options = [f"--snapshotter={self.config.snapshotter}", "-"]
        command = self._enter(["/usr/bin/ctr", "--namespace=k8s.io", "images", "import", *options])
        for archive in archives:
            with archive.open("rb") as file:
                done = subprocess.run(
                    command, env=self._variables, stdin=file, capture_output=True, text=True, check=False
                )
            if done.returncode:
                raise NodeError(f"image {archive} cannot be imported: {done.stderr.strip()[-400:]}")

    # --- waiting ---------------------------------------------------------------------------------------------------------
    def _apply(self, objects: list[dict[str, object]]) -> None:
        manifest = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        self._kubectl("apply", "-f", "-", stdin=manifest)

    def _await_ready(self) -> None:
        node = f"node/{self.config.name}"
        try:
            self._kubectl("wait", "--for=create", node, f"--timeout={READY_S:.0f}s")
            self._kubectl("wait", "--for=condition=Ready", node, f"--timeout={READY_S:.0f}s")
        except NodeError as error:
            self.check()
            raise self._programs["kubelet"].error(f"did not get the node Ready ({error})") from None
        self._await(_is_dns_ready, self._programs["coredns"], "is not ready")

    def _await(self, is_done: Callable[[], bool], program: Component, what: str) -> None:
        deadline = time.monotonic() + READY_S
        while not is_done():
            if not program.is_running:
                raise program.error(f"{program.how_it_ended()} while starting")
            if time.monotonic() > deadline:
                raise program.error(f"{what} after {READY_S:.0f} s")
            time.sleep(_POLL_S)

    def _kubectl(self, *words: str, stdin: str = "") -> None:
        command = [self.settings.kubectl, f"--kubeconfig={self.plane.kubeconfig}", *words]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NodeError(f"kubectl {' '.join(words)}: {done.stderr.strip()}")


def root_namespace(enter: Callable[[], None]) -> int:
    """Call `enter` in a new process; returns a descriptor of the mount namespace of that process. Raises OSError."""
    result_reader, result_writer = os.pipe()
    exit_reader, exit_writer = os.pipe()  # the process ends when its other end is closed
    child = os.fork()
    if not child:
        os.close(exit_writer)
        try:
            enter()
            os.write(result_writer, b"ready")
            os.read(exit_reader, 1)
        except OSError as error:
            os.write(result_writer, str(error).encode())
        finally:
            os._exit(0)
    os.close(result_writer)
    os.close(exit_reader)
    try:
        result = os.read(result_reader, 4096).decode()
        if result != "ready":
            raise OSError(0, f"the node's root cannot be mounted: {result or 'the process ended'}")
        return os.open(f"/proc/{child}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(result_reader)
        os.close(exit_writer)
        os.waitpid(child, 0)


def _set_up_network() -> None:
    """Set up loopback, the address of the node with a default route to an unused address, and the sysctls for Services."""
    with Netlink() as links:
        links.set_up("lo")
        links.add_bridge("node0")
        links.add_address("node0", node_config.NODE_ADDRESS, node_config.PREFIX_LENGTH)
        links.set_up("node0")
        links.add_default_route(node_config.GATEWAY)
    for name in ("ipv4/ip_forward", "bridge/bridge-nf-call-iptables"):
        Path("/proc/sys/net", name).write_text("1")


def accepts_connections(path: str) -> bool:
    """Whether a program listens on this Unix socket."""
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(path)
        except OSError:
            return False
        return True


def _is_dns_ready() -> bool:
    """Whether CoreDNS has synced: its plugin `ready` returns 200."""
    with socket.socket() as client:
        client.settimeout(1)
        try:
            client.connect(("127.0.0.1", 8181))
            client.sendall(b"GET /ready HTTP/1.0\r\n\r\n")
            return b" 200 " in client.recv(64)
        except OSError:
            return False


def error_message(error: str, free_bytes: int, folder: Path) -> str:
    """The error; on a full disk one line instead, because most programs then end with a stack trace."""
    if free_bytes >= FULL_DISK_BYTES:
        return error
    print(error, file=sys.stderr, flush=True)
    return (
        f"the disk of {folder} has only {free_bytes >> 20} MiB left: free up some GiB, or set XDG_CACHE_HOME to a folder on "
        "another disk"
    )


def main(make: Callable[[NodeSettings], Supervisor] = Supervisor) -> int:
    """Run the node until one of its programs ends; returns the exit code."""
    settings = NodeSettings.from_json(Path(sys.argv[1]).read_text())
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # ignored in the forked process of the keeper
    supervisor = make(settings)
    try:
        report = supervisor.start()
    except (NodeError, ControlPlaneError, OSError) as error:
        report = Report(error=error_message(str(error), shutil.disk_usage(settings.state).free, settings.state))
    report.send()
    if report.error:
        return 1
    while True:
        time.sleep(_CHECK_S)
        try:
            supervisor.check()
        except ControlPlaneError as error:
            print(error, file=sys.stderr, flush=True)
            return 1


if __name__ == "__main__":
    sys.exit(main())
