"""Isolation mode `ns`: pods in unprivileged namespaces, without root and without a container engine.

Every pod has its own network (usual ports, any number of Ray clusters), processes, hostname and memory file systems,
every container its own files. A pod's limits are shown in cgroup files and not enforced. Nothing of a pod's spec is
rewritten. Chosen by detect.py when a trial pod works.
"""

import asyncio
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from raytide_sandbox.container_runtime import namespaced_rootfs
from raytide_sandbox.container_runtime.dns import DnsServer
from raytide_sandbox.container_runtime.handles import PodSandbox
from raytide_sandbox.container_runtime.interface import ContainerConfig, Image, Mode, PodSandboxConfig
from raytide_sandbox.container_runtime.ipam import Addresses
from raytide_sandbox.container_runtime.process_runtime import Engine

_PREFIX: Final = "10.88"
_MAX_PODS: Final = 65_000
_DNS_PORT: Final = 53
_SHM_BYTES: Final = 64 << 20
_CPU_PERIOD_US: Final = 100_000


class NamespaceRuntime(Engine):
    """Pods in namespaces."""

    def __init__(self, state_dir: Path, *, now: Callable[[], datetime], given_images: Mapping[str, Path]) -> None:
        super().__init__(Mode.NS, state_dir, Addresses(_PREFIX, _MAX_PODS), now=now, given_images=given_images)
        self._dns: asyncio.DatagramTransport | None = None

    async def start(self) -> None:
        """Start the node and its DNS server, then run a trial pod; raises ContainerRuntimeError or OSError when one fails."""
        await super().start()
        try:
            opened = await self.open_socket("dgram")
            opened.bind((self.node_address, _DNS_PORT))
            loop = asyncio.get_running_loop()
            self._dns, _ = await loop.create_datagram_endpoint(lambda: DnsServer(self.names), sock=opened)
            await self._try_pod()
        except BaseException:
            await self.stop()
            raise

    async def _try_pod(self) -> None:
        config = PodSandboxConfig(uid="trial", namespace="", name="trial", hostname="trial")
        sandbox = await self.create_sandbox(config)
        try:
            trial = ContainerConfig(
                name="trial", image="busybox", argv=("true",), log_path=sandbox.directory / "trial.log"
            )
            await (await self.start_container(sandbox, trial)).wait()
        finally:
            await self.remove_sandbox(sandbox)

    async def stop(self) -> None:
        """Stop the DNS server and the node."""
        if self._dns is not None:
            self._dns.close()
            self._dns = None
        await super().stop()

    async def open_socket(self, kind: str) -> socket.socket:
        """Get a socket from the node's first process, which belongs to the pods' network wherever it is used."""
        return await self.holding.open_socket(kind)

    def endpoint(self, sandbox: PodSandbox, port: int) -> tuple[str, int]:
        """The pod's own address and the port unchanged."""
        return sandbox.ip, port

    def reserve(self, index: int) -> bool:
        """True: every sandbox has its own network."""
        del index
        return True

    def free(self, index: int) -> None:
        """Do nothing: no index is reserved."""
        del index

    def prepare(self, sandbox: PodSandbox) -> list[tuple[str, int | None]]:
        """Write the files for names, resolver and limits; returns /dev/shm and the memory volumes to mount."""
        config, directory = sandbox.config, sandbox.directory
        for name in ("root", "shm", "cgroup"):
            (directory / name).mkdir()
        for path, text in (_name_files(sandbox, self.node_address) | _limit_files(config)).items():
            (directory / path).write_text(text)
        shm_bytes = _SHM_BYTES if config.shm_bytes is None else config.shm_bytes
        volumes = [(os.path.realpath(volume.path), volume.size_bytes) for volume in config.memory_volumes]
        return [(str(directory / "shm"), shm_bytes), *volumes]

    def root_plan(self, sandbox: PodSandbox, config: ContainerConfig) -> dict[str, Any]:
        """Plan the root: the host's directories read-only, the pod's own files, the container's volumes."""
        directory = str(sandbox.directory)
        stand_ins = {path: f"{directory}/{path}" for path in ("hosts", "hostname", "resolv.conf")}
        image = self.image(config.image)
        needed = (*(image.dirs if image else ()), str(self.state_dir / "bin"))
        plan = namespaced_rootfs.RootPlan(
            root_dir=f"{directory}/root",
            own_dir=str(self.own_dir(sandbox, config)),
            shown=tuple((os.path.realpath(path), path) for path in needed if _is_hidden(path)),
            files=(
                *((host, f"/etc/{path}") for path, host in stand_ins.items()),
                (f"{directory}/cgroup", "/sys/fs/cgroup"),
                (f"{directory}/shm", "/dev/shm"),  # noqa: S108 - the pod's own
            ),
            mounts=tuple((os.path.realpath(m.source), m.target, m.is_read_only) for m in config.mounts),
            is_read_only=config.security.is_root_read_only,
        )
        return plan.as_message()

    def environment(self, sandbox: PodSandbox, config: ContainerConfig, image: Image) -> dict[str, str]:
        """The image's variables, overridden by the pod's."""
        return {**image.env, "HOSTNAME": sandbox.config.hostname, **config.env}

    def argv(self, sandbox: PodSandbox, container: ContainerConfig, argv: Sequence[str]) -> list[str]:
        """The command, unchanged."""
        del sandbox, container
        return list(argv)

    def working_dir(self, sandbox: PodSandbox, wanted: str) -> str:
        """The wanted directory, unchanged."""
        del sandbox
        return wanted


def _is_hidden(path: str) -> bool:
    return path.split("/")[1] in namespaced_rootfs.HIDDEN


def _name_files(sandbox: PodSandbox, name_server: str) -> dict[str, str]:
    config = sandbox.config
    own_names = config.hostname
    if config.subdomain:
        own_names = f"{config.hostname}.{config.subdomain}.{config.namespace}.svc.cluster.local {config.hostname}"
    lines = [
        "127.0.0.1\tlocalhost",
        "::1\tlocalhost ip6-localhost ip6-loopback",
        f"{sandbox.ip}\t{own_names}",
        *(f"{address}\t{' '.join(names)}" for address, names in config.host_aliases),
    ]
    search = f"{config.namespace}.svc.cluster.local svc.cluster.local cluster.local"
    return {
        "hosts": "\n".join(lines) + "\n",
        "hostname": config.hostname + "\n",
        "resolv.conf": f"nameserver {name_server}\nsearch {search}\noptions ndots:5 timeout:1 attempts:2\n",
    }


def _limit_files(config: PodSandboxConfig) -> dict[str, str]:
    """Files of a cgroup as programs read them, e.g. Ray, which derives its resources from the limits."""
    memory = "max" if config.memory_limit_bytes is None else str(config.memory_limit_bytes)
    quota = "max" if config.cpu_limit_millis is None else str(config.cpu_limit_millis * _CPU_PERIOD_US // 1000)
    return {
        "cgroup/cgroup.controllers": "cpu memory pids\n",
        "cgroup/cpu.max": f"{quota} {_CPU_PERIOD_US}\n",
        "cgroup/cpu.stat": "usage_usec 0\nuser_usec 0\nsystem_usec 0\n",
        "cgroup/memory.current": "0\n",
        "cgroup/memory.max": memory + "\n",
        "cgroup/memory.stat": "anon 0\nfile 0\ninactive_file 0\nactive_file 0\n",
        "cgroup/memory.swap.max": "0\n",
    }
