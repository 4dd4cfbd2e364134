"""What if a machine forbids namespaces?

The mode `plain`: pods share the host's network, files and processes; each has a loopback address, a directory and a set
of ports for Ray, and the words of its commands are changed to match (plain_text.py, ray_start_hook.py). Limits and
mounts are not enforced: a volume is where its path is written in commands or variables, /dev/shm is the host's. What it
keeps is the end of things: no process outlives its container, its pod or the sandbox.
"""

import asyncio
import contextlib
import socket
import zlib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from raytide.sandbox.node import plain_text
from raytide.sandbox.node.engine import Engine
from raytide.sandbox.node.live import PodSandbox, RunningContainer
from raytide.sandbox.node.network import Addresses
from raytide.sandbox.node.runtime import ContainerConfig, Image, Mode, Sandbox

_NAMES_S: Final = 10.0
_LONGEST_TEMP_DIR: Final = 36
"""Ray adds up to 70 characters to its temporary directory, and a unix socket's path has at most 107."""


class PlainRuntime(Engine):
    """Pods on loopback addresses."""

    def __init__(self, state_dir: Path, *, now: Callable[[], datetime], given_images: Mapping[str, Path]) -> None:
        # the sandboxes of a machine share its loopback network: each has a part of it, by its directory
        prefix = f"127.{64 + zlib.crc32(bytes(state_dir.resolve())) % 128}"
        addresses = Addresses(prefix, plain_text.MOST_PODS, is_reused_first=True)
        super().__init__(Mode.PLAIN, state_dir, addresses, now=now, given_images=given_images)
        self._reservations: dict[int, socket.socket] = {}
        self._names_changed = asyncio.Event()

    async def open_socket(self, kind: str) -> socket.socket:
        """An ordinary socket: there is one network."""
        opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM if kind == "dgram" else socket.SOCK_STREAM)
        opened.setblocking(False)
        return opened

    def endpoint(self, sandbox: PodSandbox, port: int) -> tuple[str, int]:
        """Ray's ports move by the number of the pod, and are open on 127.0.0.1."""
        return plain_text.endpoint(sandbox.ip, sandbox.index, port)

    def reserve(self, index: int) -> bool:
        """Bind a port that stands for the number: Ray's ports, which are the machine's, follow from it."""
        reservation = socket.socket()
        try:
            reservation.bind(("127.0.0.1", plain_text.reservation_port(index)))
        except OSError:
            reservation.close()
            return False
        self._reservations[index] = reservation
        return True

    def free(self, index: int) -> None:
        """Let others have the number."""
        self._reservations.pop(index).close()

    def prepare(self, sandbox: PodSandbox) -> list[tuple[str, int | None]]:
        """Nothing is mounted: memory volumes stay directories."""
        del sandbox
        return []

    def root_plan(self, sandbox: PodSandbox, config: ContainerConfig) -> None:
        """Containers see the host's files."""
        del sandbox, config

    def set_names(self, addresses_by_name: Mapping[str, Sequence[str]]) -> None:
        """Replace the names, and let containers start that waited for one."""
        super().set_names(addresses_by_name)
        self._names_changed.set()
        self._names_changed = asyncio.Event()

    async def start_container(self, sandbox: Sandbox, config: ContainerConfig) -> RunningContainer:
        """Start it when the services it names have addresses: later ones would not reach its text any more."""
        texts = (*config.argv, *config.env.values())
        wanted = {name for text in texts for name in plain_text.service_names(text)}
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_NAMES_S):
                while not all(self.names.lookup(name) for name in wanted):
                    await self._names_changed.wait()
        return await super().start_container(sandbox, config)

    def environment(self, sandbox: PodSandbox, config: ContainerConfig, image: Image) -> dict[str, str]:
        """The image's, what moves Ray's ports and files, then the pod's in the words of this mode."""
        temp_dir = self._temp_dir(sandbox, config)
        own = {
            "HOME": temp_dir,
            "HOSTNAME": sandbox.config.hostname,
            "TMPDIR": temp_dir,
            "RAY_TMPDIR": temp_dir,
            "RAY_START_HOOK": "raytide.sandbox.node.ray_start_hook.on_start",
            # Else a driver would ask for 127.0.0.1 at the machine's own address, where no Ray listens.
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
            "RAYTIDE_POD_IP": sandbox.ip,
            "RAYTIDE_POD_INDEX": str(sandbox.index),
        }
        if sandbox.config.memory_limit_bytes is not None:
            own["RAYTIDE_MEMORY_BYTES"] = str(sandbox.config.memory_limit_bytes)
        for mount in config.mounts:
            if mount.target == _SERVICE_ACCOUNT:
                own["RAYTIDE_SERVICE_ACCOUNT_DIR"] = str(mount.source)
        said = {name: self._localise(sandbox, config, text) for name, text in config.env.items()}
        return {**image.env, **own, **said}

    def argv(self, sandbox: PodSandbox, container: ContainerConfig, argv: Sequence[str]) -> list[str]:
        """With the names, addresses, ports and paths that hold here."""
        return [self._localise(sandbox, container, word) for word in argv]

    def working_dir(self, sandbox: PodSandbox, wanted: str) -> str:
        """The wanted directory where it exists, else the pod's."""
        return wanted if Path(wanted).is_dir() else str(sandbox.directory)

    def _localise(self, sandbox: PodSandbox, config: ContainerConfig, text: str) -> str:
        return plain_text.localise(
            text,
            ip=sandbox.ip,
            index=sandbox.index,
            lookup=self.names.lookup,
            index_by_ip={pod.ip: pod.index for pod in self.sandboxes()},
            paths=[(mount.target, str(mount.source)) for mount in config.mounts if mount.target not in _SHARED],
        )

    def _temp_dir(self, sandbox: PodSandbox, config: ContainerConfig) -> str:
        """A directory of the container with a short name, for the unix sockets that Ray makes below it."""
        own = self.own_dir(sandbox, config)
        if len(str(own)) <= _LONGEST_TEMP_DIR:
            return str(own)
        return f"/proc/{self.holding.pid}/cwd/{own.relative_to(self.state_dir)}"


_SERVICE_ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
"""A program of ours that looks there by itself is told where that is."""
_SHARED: Final = frozenset({"/dev/shm", "/tmp"})  # noqa: S108 - names inside the pod
"""Mount points that are too much part of every command to be replaced by text."""
