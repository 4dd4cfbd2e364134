"""Docker daemon for kind: the installed one, or one in namespaces of its own from unpacked Debian packages.

A `Docker` has how programs reach a daemon and what its nodes need. `installed` is the Docker on PATH. `prepare_own` builds what a
daemon of its own needs: packages, programs, images; tools/node starts and ends it. Called by tools/checks/e2e.py and tests/kind.
"""

import gzip
import os
import re
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
from build_cache import cache_folder
from debian_packages import DebianError
from go_build import BuildError, GoMissingError
from kind_config import KIND_YAML, SYSFS, OwnNodes, containerd_folder, node_count, socket_of
from node_settings import NodeSettings
from raytide_sandbox.controlplane.component import ControlPlaneError

PACKAGES = ("docker.io", "python3")
"""Debian packages in the root of Docker in addition to those of a node; Python runs runc_capabilities.py."""
SUPERVISOR = "../kind/docker_supervisor.py"
NODE_IMAGE = os.environ.get("RAYTIDE_E2E_NODE_IMAGE") or "kindest/node:v1.35.0"
NEWEST_SYSTEMD_V1 = 255
"""The newest systemd that starts in a container with cgroup version 1."""
LONGEST_SOCKET_PATH = 107
COMMAND_S = 600.0
"""Time limit of a command; pulling the node image takes longest."""


class KindError(Exception):
    """Docker or kind failed."""


@dataclass(frozen=True)
class Docker:
    """A Docker daemon that can run the nodes of a kind cluster."""

    kind: str
    docker: str
    node_image: str
    environ: Mapping[str, str] = field(default_factory=dict)
    """Environment variables with which both programs find the daemon."""
    inside: Callable[..., list[str]] = lambda *words: [*map(str, words)]
    """Returns the command line that runs a command in the network of the daemon."""
    root: Path = Path("/")
    """The folder that is the root of the daemon."""
    own: OwnNodes | None = None
    """What the nodes need if they are of the image of kind_image.py."""

    def run(self, *words: str | Path, deadline_s: float) -> subprocess.CompletedProcess[str]:
        """Run a program that reaches the daemon; raises KindError if it exceeds the deadline."""
        command = self.inside(*words)
        environ = os.environ | dict(self.environ)
        try:
            return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=deadline_s, check=False)
        except subprocess.TimeoutExpired:
            raise KindError(f"not within {deadline_s:.0f} s: {' '.join(map(str, words))}") from None

    def load(self, archive: Path) -> str:
        """Load the image of a docker-archive; returns the duration. Raises KindError."""
        started = time.monotonic()
        done = self.run(self.docker, "load", "--quiet", "--input", archive, deadline_s=COMMAND_S)
        if done.returncode:
            raise KindError(f"{archive} cannot be loaded: {done.stderr.strip()}")
        return f"{time.monotonic() - started:.1f} s"


# --- the installed one ---------------------------------------------------------------------------------------------------


def why_not_installed() -> str:
    """Why the Docker and kind on PATH cannot be used; empty if they can."""
    for program in ("docker", "kind"):
        if shutil.which(program) is None:
            return f"there is no {program} on PATH"
    if not _succeeds("docker", "info"):
        return "Docker is installed and does not answer"
    if not _succeeds("docker", "image", "inspect", NODE_IMAGE) and not _succeeds("docker", "pull", NODE_IMAGE):
        return f"the node image {NODE_IMAGE} is not here and cannot be pulled (RAYTIDE_E2E_NODE_IMAGE names another)"
    return ""


def installed() -> Docker:
    """The Docker and kind on PATH."""
    return Docker("kind", "docker", NODE_IMAGE)


def _succeeds(*words: str) -> bool:
    try:
        return subprocess.run(words, capture_output=True, timeout=COMMAND_S, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


# --- one of its own ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OwnDocker:
    """Settings of a daemon of its own, and the node image to load when it runs."""

    settings: NodeSettings
    programs: Path
    """Folder of the programs of kind_programs.py."""
    image: Path
    has_cgroup_v1: bool

    def reached_by(self, running: node.RunningNode) -> Docker:
        """The running daemon."""
        sysfs = tuple(path for path in SYSFS if Path(path).exists())
        nodes = node_count(KIND_YAML.read_text())
        return Docker(
            kind=str(self.programs / "kind"),
            docker=str(client_folder(self.settings) / "docker"),
            node_image=kind_image.NODE_IMAGE,
            environ={
                "DOCKER_HOST": f"unix://{socket_of(self.settings.work)}",
                "DOCKER_CONFIG": str(self.settings.work / "docker-config"),
                "KIND_EXPERIMENTAL_PROVIDER": "docker",
                "PATH": f"{client_folder(self.settings)}{os.pathsep}{os.environ.get('PATH', '')}",
            },
            inside=running.command,
            root=self.settings.work,
            own=OwnNodes(tuple(str(containerd_folder(number)) for number in range(nodes)), self.has_cgroup_v1, sysfs),
        )


def client_folder(settings: NodeSettings) -> Path:
    """The folder on PATH with Docker's client only: kind takes the first one."""
    return settings.state / "client"


def why_no_own(machine: node_machine.Machine) -> str:
    """Why a daemon of its own is not possible on this machine; empty if it is."""
    if unmet := node_requirements.unmet(machine):
        return node_requirements.in_one_line(unmet)
    error = machine.trials.get("overlay", "not tried")
    return f"overlay mounts: {error}: {node_requirements.PRIVILEGED}" if error else ""


def systemd_version(packages: Path) -> int:
    """Major version of systemd in the release of these unpacked packages; 0 if it is unknown."""
    try:
        with gzip.open(packages / "usr" / "share" / "doc" / "libsystemd0" / "changelog.Debian.gz", "rt") as changes:
            found = re.match(r"systemd \((\d+)", changes.readline())
    except OSError:
        return 0
    return int(found[1]) if found else 0


def prepare_own(kept_images: tuple[Path, ...], *, is_tethered: bool = True, state: Path | None = None) -> OwnDocker:
    """Build what a daemon of its own needs; its nodes have the kept images and the system image from the start.

    Raises NodeMissingError if the machine does not meet a requirement, and NodeError.
    """
    if reason := why_no_own(node_machine.read()):
        raise node.NodeMissingError(reason)
    has_cgroup_v1 = node_cgroups.read().version == 1
    try:
        packages = _unpack(has_cgroup_v1=has_cgroup_v1)
        control_plane.provide()
        settings = node.prepare(
            kept_images=kept_images, is_tethered=is_tethered, state=state or node.state_folder("kind")
        )
        programs = kind_programs.provide()
        images = kind_image.KindImages(
            kind=programs,
            node=node_programs.provide(),
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
        programs=programs,
        kept_images=(*settings.kept_images, system),
        stores=cache_folder("kind") / "stores",
        supervisor=SUPERVISOR,
    )
    if len(str(socket_of(settings.work))) > LONGEST_SOCKET_PATH:
        raise node.NodeError(
            f"{socket_of(settings.work)} is too long for a socket: set XDG_CACHE_HOME to a shorter path"
        )
    client_folder(settings).mkdir(parents=True, exist_ok=True)
    client = client_folder(settings) / "docker"
    client.unlink(missing_ok=True)
    client.symlink_to(packages / "usr" / "bin" / "docker")
    return OwnDocker(settings, programs, node_image, has_cgroup_v1=has_cgroup_v1)


def _unpack(*, has_cgroup_v1: bool) -> Path:
    """The root of the daemon; raises NodeMissingError if systemd of the release does not start in its containers."""
    packages = debian_root.provide((*node_machine.PACKAGES, *PACKAGES))
    version = systemd_version(packages)
    if has_cgroup_v1 and version > NEWEST_SYSTEMD_V1:
        reason = f"cgroups: version 1, with which systemd {version} of this release does not start"
        raise node.NodeMissingError(f"{reason}: boot with systemd.unified_cgroup_hierarchy=1")
    (packages / "usr" / "lib" / "modules").mkdir(
        exist_ok=True
    )  # kind mounts this folder, and cannot create it in a read-only root
    return packages
