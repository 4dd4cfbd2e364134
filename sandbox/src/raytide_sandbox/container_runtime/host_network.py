"""Isolation mode `plain`: pods share the host's network, files and processes.

For machines that forbid namespaces. Each pod has a loopback address, a directory and a set of Ray ports; its commands
and variables are rewritten to match (host_network_rewrite.py, ray_start_hook.py). Limits and mounts are not enforced:
the path of a volume is replaced in commands and variables, /dev/shm is the host's. Guaranteed as in the other mode: no
process outlives its container, its pod or the sandbox.
"""

import asyncio
import contextlib
import socket
import zlib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from raytide_sandbox.container_runtime import host_network_rewrite
from raytide_sandbox.container_runtime.handles import PodSandbox, RunningContainer
from raytide_sandbox.container_runtime.interface import ContainerConfig, Image, Mode, Sandbox
from raytide_sandbox.container_runtime.ipam import Addresses
from raytide_sandbox.container_runtime.process_runtime import Engine

_NAMES_S: Final = 10.0
_LONGEST_TEMP_DIR: Final = 36
"""Ray adds up to 70 characters to its temporary directory, and a unix socket's path has at most 107."""


class PlainRuntime(Engine):
    """Pods on loopback addresses."""

    def __init__(self, state_dir: Path, *, now: Callable[[], datetime], given_images: Mapping[str, Path]) -> None:
        # the sandboxes of a machine share its loopback network: each has a prefix derived from its directory
        prefix = f"127.{64 + zlib.crc32(bytes(state_dir.resolve())) % 128}"
        addresses = Addresses(prefix, host_network_rewrite.MAX_PODS, is_reused_first=True)
        super().__init__(Mode.PLAIN, state_dir, addresses, now=now, given_images=given_images)
        self._reservations: dict[int, socket.socket] = {}
        self._names_changed = asyncio.Event()

    async def open_socket(self, kind: str) -> socket.socket:
        """Open an ordinary socket: pods share the host's network."""
        opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM if kind == "dgram" else socket.SOCK_STREAM)
        opened.setblocking(False)
        return opened

    def endpoint(self, sandbox: PodSandbox, port: int) -> tuple[str, int]:
        """A port of Ray is on 127.0.0.1, shifted by the index of the pod; any other is on the pod's address."""
        return host_network_rewrite.endpoint(sandbox.ip, sandbox.index, port)

    def reserve(self, index: int) -> bool:
        """Reserve an index on this machine, since Ray's ports follow from it, by binding a port derived from it."""
        reservation = socket.socket()
        try:
            reservation.bind(("127.0.0.1", host_network_rewrite.reservation_port(index)))
        except OSError:
            reservation.close()
            return False
        self._reservations[index] = reservation
        return True

    def free(self, index: int) -> None:
        """Release the reservation of an index."""
        self._reservations.pop(index).close()

    def prepare(self, sandbox: PodSandbox) -> list[tuple[str, int | None]]:
        """Mount nothing: memory volumes stay directories."""
        del sandbox
        return []

    def root_plan(self, sandbox: PodSandbox, config: ContainerConfig) -> None:
        """None: containers see the host's files."""
        del sandbox, config

    def set_names(self, addresses_by_name: Mapping[str, Sequence[str]]) -> None:
        """Replace every name and wake container starts that wait for one."""
        super().set_names(addresses_by_name)
        self._names_changed.set()
        self._names_changed = asyncio.Event()

    async def start_container(self, sandbox: Sandbox, config: ContainerConfig) -> RunningContainer:
        """Wait up to 10 s for addresses of the services it names, which are rewritten at start only, then start it."""
        texts = (*config.argv, *config.env.values())
        wanted = {name for text in texts for name in host_network_rewrite.service_names(text)}
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_NAMES_S):
                while not all(self.names.lookup(name) for name in wanted):
                    await self._names_changed.wait()
        return await super().start_container(sandbox, config)

    def environment(self, sandbox: PodSandbox, config: ContainerConfig, image: Image) -> dict[str, str]:
        """The image's variables, those that move Ray's ports and files, then the pod's, rewritten."""
        temp_dir = self._temp_dir(sandbox, config)
        own = {
            "HOME": temp_dir,
            "HOSTNAME": sandbox.config.hostname,
            "TMPDIR": temp_dir,
            "RAY_TMPDIR": temp_dir,
            "RAY_START_HOOK": "raytide_sandbox.container_runtime.ray_start_hook.on_start",
            # Otherwise a driver replaces 127.0.0.1 by the machine's own address, where no Ray listens.
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
            "RAYTIDE_POD_IP": sandbox.ip,
            "RAYTIDE_POD_INDEX": str(sandbox.index),
        }
        if sandbox.config.memory_limit_bytes is not None:
            own["RAYTIDE_MEMORY_BYTES"] = str(sandbox.config.memory_limit_bytes)
        for mount in config.mounts:
            if mount.target == _SERVICE_ACCOUNT:
                own["RAYTIDE_SERVICE_ACCOUNT_DIR"] = str(mount.source)
        localised = {name: self._localise(sandbox, config, text) for name, text in config.env.items()}
        return {**image.env, **own, **localised}

    def argv(self, sandbox: PodSandbox, container: ContainerConfig, argv: Sequence[str]) -> list[str]:
        """The command with names, addresses, ports and paths rewritten for this machine."""
        return [self._localise(sandbox, container, word) for word in argv]

    def working_dir(self, sandbox: PodSandbox, wanted: str) -> str:
        """The wanted directory if it exists, else the pod's."""
        return wanted if Path(wanted).is_dir() else str(sandbox.directory)

    def _localise(self, sandbox: PodSandbox, config: ContainerConfig, text: str) -> str:
        return host_network_rewrite.localise(
            text,
            ip=sandbox.ip,
            index=sandbox.index,
            lookup=self.names.lookup,
            index_by_ip={pod.ip: pod.index for pod in self.sandboxes()},
            paths=[(mount.target, str(mount.source)) for mount in config.mounts if mount.target not in _SHARED],
        )

    def _temp_dir(self, sandbox: PodSandbox, config: ContainerConfig) -> str:
        """A short path to the container's own directory, for the unix sockets that Ray creates below it."""
        own = self.own_dir(sandbox, config)
        if len(str(own)) <= _LONGEST_TEMP_DIR:
            return str(own)
        return f"/proc/{self.holding.pid}/cwd/{own.relative_to(self.state_dir)}"


_SERVICE_ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Mount point of the pod's token; RAYTIDE_SERVICE_ACCOUNT_DIR is its path on this machine."""
_SHARED: Final = frozenset({"/dev/shm", "/tmp"})  # noqa: S108 - names inside the pod
"""Mount points that are not rewritten, because ordinary commands contain these paths too."""
