"""Supervisor of a Docker daemon in namespaces of its own: starts dockerd and ends when it does.

Runs where node_supervisor.py runs a node, and uses its root, its cgroup and its image store: dockerd sees unpacked Debian
packages as its root, and each node of the kind cluster finds a copy of the store's databases over bind-mounted layers in
/var/lib/kind. The daemon is reached by a socket in the folder of the daemon (kind_docker.py). Its containers get no
capability that this process lacks (runc_capabilities.py). Started by node_init.py.
"""

import os
import shutil
import sys
from pathlib import Path

import node_config
import node_root
import node_store
from kind_config import KIND_YAML, containerd_folder, node_count, socket_of
from node_settings import NodeSettings, Report
from node_supervisor import END_S, RUNTIME, NodeError, Supervisor, accepts_connections, main, root_namespace
from raytide_sandbox.container_runtime.netlink import Netlink
from raytide_sandbox.controlplane.component import Component

DOCKER = "dockerd"
RUNC = f"{node_config.CONFIGURATION}/runc"
RUNC_SOURCE = Path(__file__).with_name("runc_capabilities.py")


def command(settings: NodeSettings) -> list[str]:
    """The command line of dockerd, with the paths that it sees."""
    return [
        f"/usr/sbin/{DOCKER}",
        "--add-runtime=raytide=" + RUNC,
        f"--cgroup-parent=/{settings.config.cgroup}",
        "--data-root=/var/lib/docker",
        "--default-cgroupns-mode=private",
        "--default-runtime=raytide",
        "--exec-opt=native.cgroupdriver=cgroupfs",
        "--exec-root=/run/docker",
        f"--host=unix:///var/{socket_of(settings.work).name}",
        "--log-level=warn",
        "--pidfile=/run/docker.pid",
        "--storage-driver=overlay2",
    ]


class DockerSupervisor(Supervisor):
    """dockerd, and the images of the nodes that it will run."""

    def __init__(self, settings: NodeSettings) -> None:
        super().__init__(settings)
        self._commands = {**self._commands, DOCKER: command(settings)}
        self._docker = Component(DOCKER, settings.logs / f"{DOCKER}.log")
        self._programs[DOCKER] = self._docker

    def start(self) -> Report:
        """Start it; raises NodeError, ControlPlaneError or OSError."""
        node_root.prepare(self.settings.root)
        self._write_configuration()
        if not self._store.exists():
            with self._timed("images that are kept"):
                self._make_store()
        with self._timed("Docker"):
            layers = self._lay_out()
            self._root = root_namespace(lambda: node_root.enter_new(self.settings.root, layers))
            with Netlink() as links:
                links.set_up("lo")
            shutil.copyfile(RUNC_SOURCE, self.settings.root.configuration / Path(RUNC).name)
            (self.settings.root.configuration / Path(RUNC).name).chmod(0o755)
            self._launch(DOCKER)
            socket = str(socket_of(self.settings.work))
            self._await(lambda: accepts_connections(socket), self._docker, "accepts no connections")
        return Report(seconds=", ".join(self._seconds))

    def check(self) -> None:
        """Raise ControlPlaneError if dockerd has ended."""
        if not self._docker.is_running:
            raise self._docker.error(self._docker.how_it_ended())

    def _make_store(self) -> None:
        self._root = root_namespace(lambda: node_root.enter_new(self.settings.root, {}))
        self._launch_runtime()
        self._import(self.settings.kept_images)
        self._programs[RUNTIME].end(END_S)
        os.close(self._root)
        node_store.keep(self._folder, self._store)
        if not self._store.exists():
            raise NodeError(f"images cannot be kept in {self._store}: set XDG_CACHE_HOME to a folder on one disk")

    def _lay_out(self) -> dict[str, Path]:
        """Make the folder of each node's containerd; the store's layers by where they are to be mounted."""
        found = {}
        for number in range(node_count(KIND_YAML.read_text())):
            place = containerd_folder(number)
            folder = self.settings.work / place.relative_to("/")
            folder.mkdir(parents=True)
            found |= {f"{place}/{layer}": self._store / layer for layer in node_store.lay_out(self._store, folder)}
        return found


if __name__ == "__main__":
    sys.exit(main(DockerSupervisor))
