"""Container runtime interface of the sandbox's kubelet.

A protocol modelled on the Kubernetes container runtime interface: pod sandboxes, containers, exec, names and sockets.
Configurations go in as values, live objects come out. Probes, restarts and status belong to the kubelet. A runtime
guarantees that after `remove_sandbox`, or when the calling process dies, no process of the pod is left. Implemented by
`namespaced.py` (unprivileged namespaces) and `host_network.py` (loopback addresses); called by the kubelet and, for
names and listening sockets, by `raytide_sandbox/cluster.py`.
"""

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Protocol


class Mode(StrEnum):
    """Isolation mode of the pods."""

    NS = "ns"
    PLAIN = "plain"


class ContainerRuntimeError(Exception):
    """A sandbox, container or exec could not be started, or its sandbox has ended; the message suits an event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryVolume:
    """An emptyDir in memory: a tmpfs over the existing host directory `path`, seen by this pod's mounts of it."""

    path: Path
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSandboxConfig:
    """Configuration that the containers of a pod share."""

    uid: str
    namespace: str
    name: str
    hostname: str
    subdomain: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    memory_limit_bytes: int | None = None
    cpu_limit_millis: int | None = None
    shm_bytes: int | None = None
    """Size of /dev/shm; None is 64 MiB, the default of container runtimes. A mount at /dev/shm replaces it."""
    memory_volumes: tuple[MemoryVolume, ...] = ()
    host_aliases: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Further lines of /etc/hosts: (address, names)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A host file or directory shown in one container at `target` (absolute); subPath is already part of `source`."""

    source: Path
    target: str
    is_read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """User and restrictions of a container; a mode applies those it supports (see docs/sandbox.md)."""

    user: int = 0
    group: int = 0
    is_root_read_only: bool = False
    """Whether only volumes, /dev and /proc are writable."""
    has_no_new_privileges: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerConfig:
    """One start of one container: `argv` is complete, `env` is the pod's and overrides the image's."""

    name: str
    image: str
    argv: tuple[str, ...]
    log_path: Path
    env: Mapping[str, str] = field(default_factory=dict)
    working_dir: str | None = None
    mounts: tuple[Mount, ...] = ()
    attempt: int = 0
    """Number of this start; the container's own files (e.g. /tmp) are empty at each one."""
    has_stdin: bool = False
    is_tty: bool = False
    security: Security = field(default_factory=Security)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecConfig:
    """A further command in a running container; it gets the container's environment, files and names."""

    argv: tuple[str, ...]
    has_stdin: bool = False
    is_tty: bool = False
    working_dir: str | None = None


@dataclass(frozen=True, slots=True)
class Exit:
    """End of a command: `code` as a kubelet reports it (128 + signal when killed), `signal` 0 when there was none."""

    code: int
    signal: int
    finished_at: datetime


class ReadEnd(Protocol):
    """Output stream of a command, read by the kubelet."""

    async def read(self, limit_bytes: int = 65536) -> bytes:
        """Read the next bytes, empty at end of file; nothing is read ahead, so a slow reader blocks the command."""
        ...

    def close(self) -> None:
        """Stop reading; the writer gets SIGPIPE."""
        ...


class WriteEnd(Protocol):
    """Input stream of a command, written by the kubelet."""

    async def write(self, chunk: bytes) -> None:
        """Write all of `chunk`; raises BrokenPipeError when the command has closed its input."""
        ...

    def close(self) -> None:
        """Send end of file to the command (on a terminal: Ctrl-D)."""
        ...

    def resize(self, columns: int, rows: int) -> None:
        """Set the size of the command's terminal; no effect without one."""
        ...


class Sandbox(Protocol):
    """Sandbox of a pod: its address, and a first process whose end ends every process of the pod."""

    @property
    def config(self) -> PodSandboxConfig:
        """The configuration it was created from."""
        ...

    @property
    def ip(self) -> str:
        """The pod IP; the pod's next sandbox has another one."""
        ...

    @property
    def is_alive(self) -> bool:
        """Whether the first process is alive; if not, every container of the sandbox has ended too (137)."""
        ...

    async def wait(self) -> None:
        """Return when the first process has ended: after `remove_sandbox`, or because it was killed."""
        ...


class Container(Protocol):
    """One start of one container."""

    @property
    def config(self) -> ContainerConfig:
        """The configuration it was started from."""
        ...

    @property
    def id(self) -> str:
        """Unique id of this start, in the form of `containerID` (`process://…`)."""
        ...

    @property
    def pid(self) -> int:
        """Process id of the main process as the pod sees it."""
        ...

    @property
    def started_at(self) -> datetime:
        """When the main process was started."""
        ...

    @property
    def stdin(self) -> WriteEnd | None:
        """Standard input if configured. Output goes to the log file, also that of a terminal."""
        ...

    @property
    def exit(self) -> Exit | None:
        """The end of the main process; None while it runs."""
        ...

    async def wait(self) -> Exit:
        """Return when the main process and everything it started are gone. Any number of callers may wait."""
        ...


class Exec(Protocol):
    """An exec: a further command running in a container."""

    @property
    def stdin(self) -> WriteEnd | None:
        """Standard input if configured."""
        ...

    @property
    def stdout(self) -> ReadEnd:
        """Standard output; on a terminal both outputs."""
        ...

    @property
    def stderr(self) -> ReadEnd | None:
        """Standard error; None on a terminal."""
        ...

    async def wait(self) -> Exit:
        """Wait for the end and return it."""
        ...

    def kill(self) -> None:
        """SIGKILL to it and its process group, for a probe that takes too long."""
        ...


@dataclass(frozen=True, slots=True)
class Image:
    """Environment that stands for an image on this machine: where its commands are and its default command."""

    name: str
    image_id: str
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    working_dir: str = "/"
    user: int = 0
    """User id of the image, for containers with runAsNonRoot."""
    dirs: tuple[str, ...] = ()
    """Directories of this machine that its commands need."""


class Runtime(Protocol):
    """Everything the kubelet needs to run pods."""

    @property
    def mode(self) -> Mode:
        """Isolation mode of the pods."""
        ...

    @property
    def node_address(self) -> str:
        """Address where pods reach the sockets of `listen_inside`, e.g. the API server; also the `hostIP`."""
        ...

    async def start(self) -> None:
        """End what an earlier run with this state directory left, then start the node; raises ContainerRuntimeError."""
        ...

    async def stop(self) -> None:
        """End every pod without a grace period; no process is left."""
        ...

    async def wait_failed(self) -> str:
        """Return the reason when the node is lost (its first process was killed) and every pod with it."""
        ...

    def image(self, name: str) -> Image | None:
        """The image of that name; None when it is unknown (ErrImagePull)."""
        ...

    async def create_sandbox(self, config: PodSandboxConfig) -> Sandbox:
        """Create network, names and /dev/shm of a pod; raises ContainerRuntimeError."""
        ...

    async def remove_sandbox(self, sandbox: Sandbox) -> None:
        """SIGKILL everything in the sandbox and return when it is gone; no effect when it is gone already."""
        ...

    async def start_container(self, sandbox: Sandbox, config: ContainerConfig) -> Container:
        """Start it; raises ContainerRuntimeError if its command cannot run (no such file, bad working directory or mount)."""
        ...

    async def signal(self, container: Container, signal_number: int) -> None:
        """Send a signal to the main process alone (SIGTERM to a whole group leaves `ray start` hanging)."""
        ...

    async def kill(self, container: Container) -> None:
        """SIGKILL the main process and all it ever started, daemons included; `wait` then returns 137."""
        ...

    async def exec(self, container: Container, config: ExecConfig) -> Exec:
        """Run a further command in a running container; raises ContainerRuntimeError when it cannot be run."""
        ...

    async def connect(self, sandbox: Sandbox, port: int, timeout_s: float) -> socket.socket:
        """A connected, non-blocking TCP socket to a port of the pod, for probes and port-forward; raises OSError."""
        ...

    async def dial(self, address: str, port: int, timeout_s: float) -> socket.socket:
        """A connected, non-blocking TCP socket to any address of the pods' network; raises OSError."""
        ...

    async def listen_inside(self, port: int) -> socket.socket:
        """A listening TCP socket on `node_address` that pods can reach; in plain mode `port` 0 takes any free one."""
        ...

    def set_names(self, addresses_by_name: Mapping[str, Sequence[str]]) -> None:
        """Replace every name pods can resolve: full names such as `svc.ns.svc.cluster.local` to pod addresses."""
        ...
