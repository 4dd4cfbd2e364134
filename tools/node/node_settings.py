"""What a node is started with, and how its start ended: values that pass between its processes as JSON.

node.py gives the settings to the keeper, which writes them for the supervisor and for a later clean-up. Keeper or
supervisor report once, by one line on their standard output: that the node is ready, or why it is not.
"""

import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from node_config import NodeConfig
from node_root import RootPlan

FILE = "settings.json"
FIRST = "first.pid"
KEEPER = "keeper.pid"


@dataclass(frozen=True)
class NodeSettings:
    """Everything that the node's processes need."""

    state: Path
    """The folder of the lock and the logs, which stay; all else is below `work`."""
    packages: Path
    programs: Path
    control_plane: Path
    kubectl: Path
    kept_images: tuple[Path, ...]
    """Archives of images that rarely change: containerd imports them once (node_store.py)."""
    images: tuple[Path, ...]
    """Archives that containerd imports at each start."""
    stores: Path
    """The folder of the stores with the images that are kept."""
    cgroup_folders: tuple[Path, ...]
    config: NodeConfig
    is_tethered: bool
    """Whether the node ends when the process that started it does."""
    supervisor: str = "node_supervisor.py"
    """Program that starts everything in the namespaces: its path, relative to this folder."""

    @property
    def work(self) -> Path:
        """The folder that is removed at the end."""
        return self.state / "work"

    @property
    def logs(self) -> Path:
        """The folder of the programs' logs, of the last start."""
        return self.state / "logs"

    @property
    def plane(self) -> Path:
        """The folder of the control plane."""
        return self.work / "plane"

    @property
    def root(self) -> RootPlan:
        """The folders of the node's root."""
        return RootPlan(self.packages, self.programs, self.work, self.config.cpus)

    def to_json(self) -> str:
        """As `from_json` reads it."""
        return json.dumps(asdict(self), default=str, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The settings in this text."""
        found = json.loads(text)
        paths = {
            name: Path(found[name]) for name in ("state", "packages", "programs", "control_plane", "kubectl", "stores")
        }
        lists = {name: tuple(map(Path, found[name])) for name in ("kept_images", "images", "cgroup_folders")}
        return cls(
            **paths,
            **lists,
            config=NodeConfig(**found["config"]),
            is_tethered=found["is_tethered"],
            supervisor=found.get("supervisor", cls.supervisor),  # an earlier version wrote none
        )


@dataclass(frozen=True)
class Report:
    """How the start ended."""

    error: str = ""
    """Why there is no node; empty if it is ready."""
    kubeconfig: str = ""
    audit_log: str = ""
    seconds: str = ""
    """How long each part of the start took."""

    @classmethod
    def from_line(cls, line: str) -> Self:
        """The report in this line; an empty one means that the supervisor ended without a word."""
        return cls(**json.loads(line)) if line else cls(error="the node ended while it was starting")

    def to_line(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self)) + "\n"

    def send(self) -> None:
        """Write the line, and give the pipe back: this process writes no other."""
        sys.stdout.write(self.to_line())
        release_output()


def release_output() -> None:
    """Let go of the pipe that is the standard output; what is printed later goes to the log."""
    sys.stdout.flush()
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
