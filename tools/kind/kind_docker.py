"""A Docker daemon for kind: the one that is installed, or one in namespaces of its own from unpacked Debian packages.

Each is a `Docker`: how a program reaches it, and what its nodes need. `installed` looks for Docker and kind on PATH.
`prepare_own` makes what a daemon of its own needs: packages, programs, images; tools/node starts and ends it without a trace
on the machine. Called by tools/checks/e2e.py.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import control_plane
import debian_root
import kind_image
import kind_programs
import node
import node_cgroups
import node_images
import node_machine
import node_programs
import node_requirements
from debian_packages import DebianError
from environments import cache_folder
from go_build import BuildError, GoMissingError
from kind_config import SYSFS, OwnNodes, node_count
from node_settings import NodeSettings
from raytide_sandbox.controlplane.component import ControlPlaneError

ROOT = Path(__file__).resolve().parents[2]
KIND_YAML = ROOT / "e2e" / "kind.yaml"
PACKAGES = ("docker.io", "python3")
"""What Docker's root has besides the node's packages; Python runs runc_capabilities.py."""
SUPERVISOR = "../kind/docker_supervisor.py"
NODE_IMAGE = os.environ.get("RAYTIDE_E2E_NODE_IMAGE") or "kindest/node:v1.35.0"
LONGEST_SOCKET_PATH = 107
ASK_S = 600.0
"""Pulling the node image is included."""


class KindError(Exception):
    """Docker or kind fails; the text is the reason."""


@dataclass(frozen=True)
class Docker:
    """A Docker daemon that can run the nodes of a kind cluster."""

    kind: str
    docker: str
    node_image: str
    environ: Mapping[str, str] = field(default_factory=dict)
    """Variables by which both programs find the daemon."""
    inside: Callable[..., list[str]] = lambda *words: [*map(str, words)]
    """Makes a command one that runs in the daemon's network."""
    root: Path = Path("/")
    """The folder that is the daemon's root."""
    own: OwnNodes | None = None
    """What the nodes need, if they are of the image that is made here."""

    def run(self, *words: str | Path, deadline_s: float) -> subprocess.CompletedProcess[str]:
        """Run a program that reaches the daemon; raises KindError if it takes too long."""
        command = self.inside(*words)
        environ = os.environ | dict(self.environ)
        try:
            return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=deadline_s, check=False)
        except subprocess.TimeoutExpired:
            raise KindError(f"not within {deadline_s:.0f} s: {' '.join(map(str, words))}") from None

    def load(self, archive: Path) -> str:
        """Load the image of a docker-archive into the daemon: how long it took. Raises KindError."""
        started = time.monotonic()
        done = self.run(self.docker, "load", "--quiet", "--input", archive, deadline_s=ASK_S)
        if done.returncode:
            raise KindError(f"{archive} cannot be loaded: {done.stderr.strip()}")
        return f"{time.monotonic() - started:.1f} s"


# --- the installed one ---------------------------------------------------------------------------------------------------


def why_not_installed() -> str:
    """What is missing on this machine for its own Docker and kind; empty when nothing is."""
    for program in ("docker", "kind"):
        if shutil.which(program) is None:
            return f"there is no {program} on PATH"
    if not _succeeds("docker", "info"):
        return "Docker is installed and does not answer"
    if not _succeeds("docker", "image", "inspect", NODE_IMAGE) and not _succeeds("docker", "pull", NODE_IMAGE):
        return f"the node image {NODE_IMAGE} is not here and cannot be pulled (RAYTIDE_E2E_NODE_IMAGE names another)"
    return ""


def installed() -> Docker:
    """The machine's Docker and kind."""
    return Docker("kind", "docker", NODE_IMAGE)


def _succeeds(*words: str) -> bool:
    try:
        return subprocess.run(words, capture_output=True, timeout=ASK_S, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


# --- one of its own ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OwnDocker:
    """A daemon that can be started, and the image that it loads then."""

    settings: NodeSettings
    programs: kind_programs.KindPrograms
    image: Path
    has_cgroup_v1: bool

    def reached_by(self, running: node.RunningNode) -> Docker:
        """The daemon, once it runs."""
        sysfs = tuple(path for path in SYSFS if Path(path).exists())
        nodes = node_count(KIND_YAML.read_text())
        return Docker(
            kind=str(self.programs.kind),
            docker=str(self.settings.packages / "usr" / "bin" / "docker"),
            node_image=kind_image.NODE_IMAGE,
            environ={
                "DOCKER_HOST": f"unix://{socket_of(self.settings)}",
                "DOCKER_CONFIG": str(self.settings.work / "docker-config"),
                "KIND_EXPERIMENTAL_PROVIDER": "docker",
                "PATH": f"{os.environ.get('PATH', '')}{os.pathsep}{self.settings.packages / 'usr' / 'bin'}",
            },
            inside=running.command,
            root=self.settings.work,
            own=OwnNodes(tuple(str(containerd_folder(number)) for number in range(nodes)), self.has_cgroup_v1, sysfs),
        )


def socket_of(settings: NodeSettings) -> Path:
    """The daemon's socket, as the machine sees it."""
    return settings.work / "var" / "docker.sock"


def containerd_folder(number: int) -> Path:
    """The folder of the containerd of one node, in the daemon's root."""
    return Path("/var/lib/kind", str(number), "containerd")


def why_no_own(machine: node_machine.Machine) -> str:
    """What this machine lacks for a daemon of its own; empty when nothing is missing."""
    missing = [f"{lack.name}: {lack.found}: {lack.remedy}" for lack in node_requirements.lacks(machine)]
    if not missing and (error := machine.trials.get("overlay", "not tried")):
        missing.append(f"overlay mounts: {error}: {node_requirements.PRIVILEGED}")
    return "; ".join(missing)


def prepare_own(kept_images: tuple[Path, ...], *, is_tethered: bool = True, state: Path | None = None) -> OwnDocker:
    """Make all that a daemon of its own needs; its nodes have the kept images and those of the control plane from the start.

    Raises NodeMissingError where the machine does not allow one, and NodeError.
    """
    if lack := why_no_own(node_machine.read()):
        raise node.NodeMissingError(lack)
    try:
        control_plane.provide()
        settings = node.prepare(
            kept_images=kept_images, is_tethered=is_tethered, state=state or node.state_folder("kind")
        )
        programs, nodes = kind_programs.provide(), node_programs.provide()
        packages = debian_root.provide((*node_machine.PACKAGES, *PACKAGES))
        (packages / "usr" / "lib" / "modules").mkdir(exist_ok=True)  # kind mounts the folder, and the root is read-only
        images = kind_image.KindImages(
            kind=programs,
            node=nodes,
            control_plane=settings.control_plane,
            iptables=settings.config.iptables,
            may_lower_oom_scores=settings.config.may_lower_oom_scores,
        )
        node_image, system = kind_image.node(images), kind_image.system(images)
    except (BuildError, GoMissingError, ControlPlaneError, node_images.ImageError, DebianError, OSError) as error:
        raise node.NodeError(str(error)) from error
    settings = replace(
        settings,
        packages=packages,
        programs=programs.folder,
        kept_images=(*settings.kept_images, system),
        stores=cache_folder("kind") / "stores",
        supervisor=SUPERVISOR,
    )
    if len(str(socket_of(settings))) > LONGEST_SOCKET_PATH:
        raise node.NodeError(f"{socket_of(settings)} is too long for a socket: set XDG_CACHE_HOME to a shorter path")
    return OwnDocker(settings, programs, node_image, has_cgroup_v1=node_cgroups.read().version == 1)
