"""Supervisor of a Docker daemon in namespaces of its own: starts dockerd and ends with it.

Runs in place of node_supervisor.py, with the same root, cgroup and image store: the root of dockerd is unpacked Debian packages, and
/var/lib/kind has for each node of the kind cluster a copy of the store's databases and its layers, bind-mounted. The socket of the
daemon is in its folder (kind_docker.py). Its containers have no capability that this process does not have
(runc_capabilities.py). Started by node_init.py.
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
    """Command line of dockerd, with paths in its root."""
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
    """dockerd, with the images of its nodes."""

    def __init__(self, settings: NodeSettings) -> None:
        super().__init__(settings)
        self._commands = {**self._commands, DOCKER: command(settings)}
        self._docker = Component(DOCKER, settings.logs / f"{DOCKER}.log")
        self._programs[DOCKER] = self._docker

    def start(self) -> Report:
        """Start dockerd; raises NodeError, ControlPlaneError or OSError."""
        node_root.prepare(self.settings.root)
        self._write_configuration()
        if not self._store.exists():
            with self._timed("kept images"):
                self._make_store()
        with self._timed("Docker"):
            layers = self._prepare_nodes()
            self._root = root_namespace(lambda: node_root.enter_new(self.settings.root, layers))
            with Netlink() as links:
                links.set_up("lo")
            runc = self.settings.root.configuration / Path(RUNC).name
            shutil.copyfile(RUNC_SOURCE, runc)
            runc.chmod(0o755)
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

    def _prepare_nodes(self) -> dict[str, Path]:
        """Create the containerd folder of each node; returns the layers of the store by the paths where they are mounted."""
        found = {}
        for number in range(node_count(KIND_YAML.read_text())):
            path = containerd_folder(number)
            folder = self.settings.work / path.relative_to("/")
            folder.mkdir(parents=True)
            layers = node_store.prepare_folder(self._store, folder)
            found |= {f"{path}/{layer}": self._store / layer for layer in layers}
        return found


if __name__ == "__main__":
    sys.exit(main(DockerSupervisor))
