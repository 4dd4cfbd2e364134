"""Settings of a node and the report of its start: JSON between its processes.

node.py writes the settings to the keeper, which stores them for the supervisor and for a later cleanup. The keeper or the
supervisor writes one report to its standard output: that the node is ready, or the error.
"""

import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from node_config import NodeConfig
from node_root import RootPlan

SETTINGS_FILE = "settings.json"
FIRST_PID_FILE = "first.pid"
KEEPER_PID_FILE = "keeper.pid"


@dataclass(frozen=True)
class NodeSettings:
    """Settings for the processes of a node."""

    state: Path
    """The folder of the lock and the logs, which are kept; everything else is below `work`."""
    packages: Path
    programs: Path
    control_plane: Path
    kubectl: Path
    kept_images: tuple[Path, ...]
    """Archives that containerd imports once (node_store.py)."""
    images: tuple[Path, ...]
    """Archives that containerd imports at each start."""
    stores: Path
    """The folder of the stores with `kept_images`."""
    cgroup_folders: tuple[Path, ...]
    config: NodeConfig
    is_tethered: bool
    """Whether the node ends with the process that started it."""
    supervisor: str = "node_supervisor.py"
    """Path of the program that starts everything in the namespaces, relative to this folder."""

    @property
    def work(self) -> Path:
        """The folder that is removed when the node ends."""
        return self.state / "work"

    @property
    def logs(self) -> Path:
        """The folder of the logs of the last start."""
        return self.state / "logs"

    @property
    def plane(self) -> Path:
        """The folder of the control plane."""
        return self.work / "plane"

    @property
    def root(self) -> RootPlan:
        """The folders of the root of the node."""
        return RootPlan(self.packages, self.programs, self.work, self.config.cpus)

    def to_json(self) -> str:
        """The settings as JSON."""
        return json.dumps(asdict(self), default=str, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Parse the output of `to_json`."""
        found = json.loads(text)
        for name in ("state", "packages", "programs", "control_plane", "kubectl", "stores"):
            found[name] = Path(found[name])
        for name in ("kept_images", "images", "cgroup_folders"):
            found[name] = tuple(map(Path, found[name]))
        return cls(**found | {"config": NodeConfig(**found["config"])})


@dataclass(frozen=True)
class Report:
    """Result of a start."""

    error: str = ""
    """Empty if the node is ready."""
    kubeconfig: str = ""
    audit_log: str = ""
    seconds: str = ""
    """Duration of each part of the start, for the log."""

    @classmethod
    def from_line(cls, line: str) -> Self:
        """Parse the output of `to_line`."""
        return cls(**json.loads(line))

    def to_line(self) -> str:
        """The report as one line of JSON."""
        return json.dumps(asdict(self)) + "\n"

    def send(self) -> None:
        """Write the report to standard output and close the pipe."""
        sys.stdout.write(self.to_line())
        release_output()


def release_output() -> None:
    """Close the pipe that is the standard output: later output goes to standard error, which is the log."""
    sys.stdout.flush()
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
