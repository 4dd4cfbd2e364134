"""The operator process of a demo.

Starts `raytide operator` and records its PID and start time in the state directory, so that a later demo can end it if the one that
started it was killed. Only the process of the record is signaled. Used by demo.py and demo_elastic.py.
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
    """The operator of a demo with this state directory."""

    def __init__(self, directory: Path, program: Path) -> None:
        self.directory = directory
        self._record = directory / "operator.json"
        self._program = program
        self.kubeconfig = directory / "kubeconfig"
        self.log = directory / "operator.log"

    def start(self) -> None:
        """Start the operator in a session of its own, so that Ctrl-C does not signal it."""
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
        """Send SIGTERM, then SIGKILL, to the recorded process; False if it does not run."""
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
