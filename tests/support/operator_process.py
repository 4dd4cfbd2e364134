"""`raytide operator` as a process of its own, started as by a user or in a pod.

Takes a kubeconfig and flags, gives a process that is ready, tells its CPU and memory as the kernel counts them, and ends
it by pid. Raises with the last lines of its log when it does not come up. Used by `make golden`, by benches and by tests
that need a real process.
"""

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Self

from support.deadlines import PATIENCE
from support.ports import free_port

READY_WITHIN_S = 60.0 * PATIENCE
ENDS_WITHIN_S = 20.0 * PATIENCE


class OperatorProcess:
    """One operator; starts when entered, ends when left."""

    def __init__(self, kubeconfig: Path, log: Path, *flags: str, environment: dict[str, str] | None = None) -> None:
        self._kubeconfig = kubeconfig
        self._flags = flags
        self._environment = environment or {}
        self._process: subprocess.Popen[bytes] | None = None
        self.log = log
        self.health = f"127.0.0.1:{free_port()}"

    @property
    def pid(self) -> int:
        """Of the running process."""
        assert self._process is not None, "not started"
        return self._process.pid

    @property
    def cpu_s(self) -> float:
        """CPU seconds it has used so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def rss_mb(self) -> float:
        """Resident memory."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def start(self) -> None:
        """Start it and wait until it is ready."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self._environment},
            )
        end = time.monotonic() + READY_WITHIN_S
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > end:
                self.stop()
                raise AssertionError(f"the operator is not ready:\n{tail(self.log)}")
            time.sleep(0.1)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """SIGTERM, and SIGKILL to what does not go."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _command(self) -> list[str]:
        command = [sys.executable, "-m", "raytide", "operator", "--kubeconfig", str(self._kubeconfig)]
        return [*command, "--metrics-addr", "0", "--health-probe-bind-address", self.health, *self._flags]

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self.health}/readyz", timeout=2 * PATIENCE) as answer:
                return answer.status == 200
        except (urllib.error.URLError, OSError):
            return False


def tail(log: Path, lines: int = 15) -> str:
    """The end of a log."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
