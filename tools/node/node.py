"""A real Kubernetes node on this machine: containerd, runc, kubelet, kube-proxy and CoreDNS beside a control plane.

`Node` starts one in namespaces of its own, and ends it in any case. Its kubeconfig is valid in its network only, in which
`RunningNode.command` runs programs. On the machine it has only cgroups and files below the cache folder, which are removed at the
end. `prepare` builds what a start needs: programs, packages, images. Errors are NodeError with one line. Called by
tools/checks/e2e.py, tools/kind and tests/node.
"""

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import go_build
import node_images
import node_keeper
import node_machine
import node_programs
import node_requirements
from build_cache import cache_folder
from kube_tools import ToolMissingError, find_tool
from node_config import NodeConfig
from node_settings import FIRST_PID_FILE, KEEPER_PID_FILE, SETTINGS_FILE, NodeSettings, Report
from raytide_sandbox.controlplane.binaries import find_binary
from raytide_sandbox.controlplane.component import ControlPlaneError
from raytide_sandbox.state_dir import AlreadyRunningError, StateDirectory, start_ticks

NAME = "node-1"
KEEPER = Path(__file__).with_name("node_keeper.py")
LOG = "node.log"
END_S = 120.0
"""Removing the files can take long on a busy disk."""
_POLL_S = 0.05


class NodeError(Exception):
    """A node could not be started or ended; the message is one line."""


class NodeMissingError(NodeError):
    """The machine does not meet a requirement; the message has the fix."""


@dataclass(frozen=True)
class RunningNode:
    """A node that is Ready."""

    kubeconfig: Path
    """Of the administrator; its server is reachable in the network of the node only."""
    audit_log: Path
    first_pid: int
    """PID of the first process of the PID namespace: the node ends with it."""
    keeper_pid: int
    seconds: str
    """Duration of each part of the start, for the log."""

    def command(self, *words: str | Path) -> list[str]:
        """The command line that runs a program of the machine in the network of the node."""
        return ["nsenter", f"--net=/proc/{self.first_pid}/ns/net", "--", *map(str, words)]


def state_folder(level: str = "node") -> Path:
    """The state folder of the node, or (`kind`) of the Docker daemon with the nodes of the kind cluster."""
    return cache_folder(level) / "state"


def prepare(
    images: tuple[Path, ...] = (),
    *,
    kept_images: tuple[Path, ...] = (),
    is_tethered: bool = True,
    state: Path | None = None,
) -> NodeSettings:
    """Build what a node with these images needs; `kept_images` are imported once and kept between starts.

    Raises NodeMissingError if the machine does not meet a requirement, and NodeError.
    """
    machine = node_machine.read()
    if unmet := node_requirements.unmet(machine):
        raise NodeMissingError(node_requirements.in_one_line(unmet))
    assert machine.root is not None  # noqa: S101 - else the packages are an unmet requirement
    state = state or state_folder()
    try:
        programs = node_programs.provide()
        pause = node_images.pause(programs / "pause")
        control_plane, kubectl = find_binary(), find_tool("kubectl")
    except (go_build.BuildError, node_images.ImageError, ControlPlaneError, ToolMissingError, OSError) as error:
        raise NodeError(str(error)) from error
    return NodeSettings(
        state=state,
        packages=machine.root,
        programs=programs,
        control_plane=control_plane,
        kubectl=kubectl,
        kept_images=(pause, *kept_images),
        images=images,
        stores=cache_folder("node") / "stores",
        cgroup_folders=machine.cgroups.folders,
        config=NodeConfig(
            name=NAME,
            cgroup=cgroup_of(state),
            snapshotter=node_requirements.snapshotter(machine),
            may_lower_oom_scores=node_requirements.may_lower_oom_scores(machine),
            iptables=node_requirements.iptables_backend(machine),
            cpus=node_requirements.reported_cpus(machine),
        ),
        is_tethered=is_tethered,
    )


def cgroup_of(state: Path) -> str:
    """Name of the cgroup of the node with this state folder; always the same, so that the next start can remove it."""
    return f"raytide-node-{sha256(str(state).encode()).hexdigest()[:8]}"


class Node:
    """A node with these settings, as a context manager."""

    def __init__(self, settings: NodeSettings) -> None:
        self._settings = settings
        self._keeper: subprocess.Popen[str] | None = None

    def start(self) -> RunningNode:
        """Start the node and wait until it is Ready. Raises NodeError after removing what was started."""
        state = self._settings.state
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (state / LOG).open("wb") as log:
            self._keeper = subprocess.Popen(
                [sys.executable, KEEPER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
                start_new_session=True,
            )  # fmt: skip
        try:
            report = self._report(self._keeper)
        except BaseException:
            self.end()
            raise
        if report.error:
            self.end()
            raise NodeError(report.error)
        first = int((state / FIRST_PID_FILE).read_text())
        return RunningNode(Path(report.kubeconfig), Path(report.audit_log), first, self._keeper.pid, report.seconds)

    def _report(self, keeper: "subprocess.Popen[str]") -> Report:
        assert keeper.stdin is not None  # noqa: S101 - both are pipes
        assert keeper.stdout is not None  # noqa: S101
        with keeper.stdin as pipe:
            pipe.write(self._settings.to_json())
        with keeper.stdout as pipe:
            line = pipe.readline()
        return Report.from_line(line) if line else Report(error=f"the node ended while starting: see {self.log}")

    @property
    def log(self) -> Path:
        """Log file of the keeper and the supervisor."""
        return self._settings.state / LOG

    def end(self) -> None:
        """End the node and wait until everything is removed; raises NodeError after `END_S`."""
        if self._keeper is None:
            return
        self._keeper.terminate()
        try:
            self._keeper.wait(END_S)
        except subprocess.TimeoutExpired:
            self._keeper.kill()
            self._keeper.wait()
            raise NodeError(f"the node did not end within {END_S:.0f} s: run `make e2e DOWN=1`") from None

    def __enter__(self) -> RunningNode:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.end()


def clear(settings: NodeSettings) -> None:
    """Remove what an earlier node with this state folder left; raises NodeError if one runs, or if that fails.

    A start does the same. Call it before a snapshot of the machine, because the removal would count as a change by the new node.
    """
    directory = StateDirectory(settings.state)
    directory.create()
    try:
        with directory.claim():
            node_keeper.clear(settings)
    except AlreadyRunningError:
        raise NodeError(node_keeper.another_runs(settings)) from None
    except OSError as error:
        raise NodeError(str(error)) from error


def clean(state: Path) -> str:
    """End the node with this state folder, if one runs, and remove what an earlier one left; returns a message."""
    try:
        settings = NodeSettings.from_json((state / SETTINGS_FILE).read_text())
        pid, ticks = map(int, (state / KEEPER_PID_FILE).read_text().split())
    except FileNotFoundError:
        return "there is no node"
    if start_ticks(pid) == ticks:
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + END_S
        while start_ticks(pid) == ticks:
            if time.monotonic() > deadline:
                raise NodeError(f"the node's keeper, process {pid}, did not end within {END_S:.0f} s")
            time.sleep(_POLL_S)
        return "the node has ended"
    try:
        node_keeper.clear(settings)
    except OSError as error:
        raise NodeError(str(error)) from error
    return "what an earlier node left is removed"


def main() -> int:
    """End the node and the Docker daemon: `make e2e DOWN=1`. Returns the exit code."""
    code = 0
    for level in ("node", "kind"):
        try:
            print(f"{level}: {clean(state_folder(level))}")
        except NodeError as error:
            print(f"{level}: {error}")
            code = 1
    return code


if __name__ == "__main__":
    sys.exit(main())
