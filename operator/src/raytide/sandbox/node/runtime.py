"""What must something offer that runs pods, so that the kubelet need not know how?

A protocol in the manner of the Kubernetes container runtime interface: pod sandboxes, containers in them, exec, names
and sockets; values go in, small live objects come out. It promises nothing about probes, restarts or status, which are
the kubelet's, and everything about ends: after `remove_sandbox`, or when whoever called it dies, nothing of the pod is
left. Implemented by `ns.py` (unprivileged namespaces) and `plain.py` (loopback addresses); called by the kubelet and,
for names and listening sockets, by `sandbox/cluster.py`.
"""

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Protocol


class Mode(StrEnum):
    """How pods are kept apart."""

    NS = "ns"
    PLAIN = "plain"


class RuntimeTrouble(Exception):  # noqa: N818 - the kubelet reports it as the reason a pod cannot start
    """A sandbox, container or exec could not be started, or its sandbox has ended; the text is fit for an event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryVolume:
    """An emptyDir in memory: a tmpfs over the existing host directory `path`, seen by this pod's mounts of it."""

    path: Path
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSandboxConfig:
    """What is common to the containers of a pod."""

    uid: str
    namespace: str
    name: str
    hostname: str
    subdomain: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    memory_limit_bytes: int | None = None
    cpu_limit_millis: int | None = None
    shm_bytes: int | None = None
    """Size of /dev/shm; None is the 64 MiB that container runtimes give. A mount at /dev/shm replaces it."""
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
    """As whom a container runs and what it may write; a mode honours what it can (see docs/sandbox.md)."""

    user: int = 0
    group: int = 0
    is_root_read_only: bool = False
    """Only volumes, /dev and /proc can be written."""
    has_no_new_privileges: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerConfig:
    """One start of one container: `argv` is complete, `env` holds what the pod says and wins over the image's."""

    name: str
    image: str
    argv: tuple[str, ...]
    log_path: Path
    env: Mapping[str, str] = field(default_factory=dict)
    working_dir: str | None = None
    mounts: tuple[Mount, ...] = ()
    attempt: int = 0
    """Number of this start; a container's own files (its /tmp) begin empty with each."""
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
    """How something ended: `code` as a kubelet reports it (128 + signal when killed), `signal` 0 when there was none."""

    code: int
    signal: int
    finished_at: datetime


class ReadEnd(Protocol):
    """What a command writes."""

    async def read(self, limit_bytes: int = 65536) -> bytes:
        """The next bytes, at least one; empty at the end. Reads no further than asked, so a slow reader slows the writer."""
        ...

    def close(self) -> None:
        """Stop reading; the writer gets SIGPIPE."""
        ...


class WriteEnd(Protocol):
    """What a command reads."""

    async def write(self, chunk: bytes) -> None:
        """Write all of it; raises BrokenPipeError when nobody reads any more."""
        ...

    def close(self) -> None:
        """End of file for the command (on a terminal: Ctrl-D)."""
        ...

    def resize(self, columns: int, rows: int) -> None:
        """Tell the command the size of its terminal; without one it does nothing."""
        ...


class Sandbox(Protocol):
    """A pod's surroundings: its address, and one process on which everything in it hangs."""

    @property
    def config(self) -> PodSandboxConfig:
        """What it was made from."""
        ...

    @property
    def ip(self) -> str:
        """The pod's address; a sandbox made again has another."""
        ...

    @property
    def is_alive(self) -> bool:
        """Whether its first process lives; when not, every container in it has ended too (137)."""
        ...

    async def wait(self) -> None:
        """Return when its first process has ended: after `remove_sandbox`, or because someone killed it."""
        ...


class Container(Protocol):
    """One start of one container."""

    @property
    def config(self) -> ContainerConfig:
        """What it was made from."""
        ...

    @property
    def id(self) -> str:
        """Unique per start, fit for `containerID` (`process://…`)."""
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
        """Its standard input when the configuration asks for one. Output is in the log file, terminal or not."""
        ...

    @property
    def exit(self) -> Exit | None:
        """How it ended; None while it runs."""
        ...

    async def wait(self) -> Exit:
        """Return when the main process and everything it started are gone. Any number may wait."""
        ...


class Exec(Protocol):
    """A further command running in a container."""

    @property
    def stdin(self) -> WriteEnd | None:
        """Present when asked for."""
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
        """How it ended."""
        ...

    def kill(self) -> None:
        """SIGKILL to it and its process group, for a probe that takes too long."""
        ...


@dataclass(frozen=True, slots=True)
class Image:
    """What an image name stands for on this machine: where its commands are and what it runs by itself."""

    name: str
    image_id: str
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    working_dir: str = "/"
    user: int = 0
    """Whom it runs as where root is refused."""
    dirs: tuple[str, ...] = ()
    """What its commands need of this machine, wherever that is."""


class Runtime(Protocol):
    """Everything the kubelet needs to run pods."""

    @property
    def mode(self) -> Mode:
        """How pods are kept apart."""
        ...

    @property
    def node_address(self) -> str:
        """Where pods reach what `listen_inside` opened, e.g. the API server; good as `hostIP`."""
        ...

    async def start(self) -> None:
        """Prepare the node, after ending whatever an earlier one with this state directory left; raises RuntimeTrouble."""
        ...

    async def stop(self) -> None:
        """End every pod at once and leave nothing."""
        ...

    async def wait_failed(self) -> str:
        """Return when the node itself is lost (someone killed its first process), with the reason; every pod is gone."""
        ...

    def image(self, name: str) -> Image | None:
        """The image of that name; None when nothing here stands for it (ErrImagePull)."""
        ...

    async def create_sandbox(self, config: PodSandboxConfig) -> Sandbox:
        """Network, names and /dev/shm of a pod; raises RuntimeTrouble."""
        ...

    async def remove_sandbox(self, sandbox: Sandbox) -> None:
        """SIGKILL everything in it and return when it is gone; harmless when it is gone already."""
        ...

    async def start_container(self, sandbox: Sandbox, config: ContainerConfig) -> Container:
        """Start it; raises RuntimeTrouble when its command cannot be run (no such file, bad working directory or mount)."""
        ...

    async def signal(self, container: Container, signal_number: int) -> None:
        """Send a signal to the main process alone (SIGTERM to a whole group leaves `ray start` hanging)."""
        ...

    async def kill(self, container: Container) -> None:
        """SIGKILL the main process and all it ever started, daemons included; `wait` then returns 137."""
        ...

    async def exec(self, container: Container, config: ExecConfig) -> Exec:
        """Run a further command in a running container; raises RuntimeTrouble when it cannot be run."""
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
