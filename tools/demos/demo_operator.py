"""Which operator belongs to the demo, and how does it end?

Starts `raytide operator` as a process of its own, as a person would, and writes down which one it is beside the
sandbox. It ends exactly that process, checked by its start time, also when the demo that started it was killed and
somebody else clears up. Used by the demo only.
"""

import json
import os
import select
import signal
import subprocess
from pathlib import Path
from typing import Final

from raytide_sandbox.state_dir import start_ticks

GENTLE_END_S: Final = 15.0
KILLED_END_S: Final = 5.0


class DemoOperator:
    """The one operator of the demo's directory."""

    def __init__(self, directory: Path, program: Path) -> None:
        self._record = directory / "operator.json"
        self._program = program
        self.kubeconfig = directory / "kubeconfig"
        self.log = directory / "operator.log"

    def start(self) -> None:
        """Start it in a session of its own, so that Ctrl-C reaches the demo alone; it logs beside the sandbox."""
        addresses = ["--metrics-addr", "0", "--health-probe-bind-address", "0"]
        with self.log.open("wb") as log:
            operator = subprocess.Popen(
                [self._program, "operator", "--kubeconfig", self.kubeconfig, *addresses],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._record.write_text(json.dumps({"pid": operator.pid, "start_ticks": start_ticks(operator.pid)}))

    def end(self) -> bool:
        """SIGTERM, then SIGKILL, to the recorded process; False when it does not run."""
        try:
            record = json.loads(self._record.read_text())
            return _end(record["pid"], record["start_ticks"])
        except (OSError, ValueError, KeyError):
            return False
        finally:
            self._record.unlink(missing_ok=True)


def _end(pid: int, started: int) -> bool:
    descriptor = os.pidfd_open(pid)
    try:
        if started is None or start_ticks(pid) != started:
            return False
        for number, patience_s in ((signal.SIGTERM, GENTLE_END_S), (signal.SIGKILL, KILLED_END_S)):
            signal.pidfd_send_signal(descriptor, number)
            if select.select([descriptor], [], [], patience_s)[0]:
                break
    finally:
        os.close(descriptor)
    return True
