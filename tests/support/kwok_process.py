"""Fake nodes: kwok as a process next to a control plane.

Takes the program and an administrator's kubeconfig; every node with its annotation (plane_admin.FAKE_NODE) becomes Ready
and every pod bound to one runs at once, by the stages in `tests/golden/kwok-stages.yaml` or in another file. Ends by pid. Used by `make
golden` and by tests and benches that need more nodes than there are.
"""

import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from support.deadlines import PATIENCE

STAGES = Path(__file__).parents[1] / "golden" / "kwok-stages.yaml"
ENDS_WITHIN_S = 10.0 * PATIENCE


class Kwok:
    """Runs while entered; nodes that wait for it become Ready."""

    def __init__(self, program: Path, kubeconfig: Path, log: Path, stages: Path = STAGES) -> None:
        self._command = [
            *(str(program), "--kubeconfig", str(kubeconfig), "--config", str(stages), "--v", "WARN"),
            *("--manage-nodes-with-annotation-selector", "kwok.x-k8s.io/node=fake"),
            *("--cidr", "10.128.0.0/9", "--node-ip", "127.0.0.1", "--node-lease-duration-seconds", "40"),
        ]
        self.log = log

    def __enter__(self) -> Self:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.terminate()
        try:
            self._process.wait(ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
