"""Supervisor that restarts the autoscaler process.

Runs one command as a child process and restarts it with backoff whenever it ends, because the head pod of an autoscaled
cluster has restartPolicy Never, which applies to all its containers. It forwards signals and reaps orphans as a
container's first process must. It exits with 0 after SIGTERM or SIGINT, and with the child's own code if that reports
bad arguments. If it dies, the child's life line closes and the child ends too. Called by cli/autoscaler.py; it imports
little beyond the standard library, so that it takes little memory (D12).
"""

import os
import signal
import time
from collections.abc import Callable, Sequence
from typing import Final

from raytide.runtime.backoff import Backoff

EXIT_BAD_CONFIGURATION: Final = 2
"""Exit code of a child that would fail in the same way again."""
FIRST_WAIT_S: Final = 0.5
LONGEST_WAIT_S: Final = 10.0
"""Shorter than a liveness probe's failure time: a container ended by a probe is not restarted."""
HEALTHY_S: Final = 60.0
"""The backoff is reset after a child that ran for so long."""
GRACE_PERIOD_S: Final = 5.0
"""Grace period of the child after a termination signal."""
ENDING: Final = frozenset({signal.SIGTERM, signal.SIGINT})
PASSED_ON: Final = frozenset({signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT})
EXPECTED: Final = ENDING | PASSED_ON | {signal.SIGCHLD}

CHILD_ENVIRONMENT: Final = {"MALLOC_ARENA_MAX": "1", "GRPC_VERBOSITY": "NONE"}
"""Child environment unless the container sets it; it must be set before the start. gRPC's threads get no heaps of their
own, and gRPC does not log, since the sidecar logs its errors."""


class Supervisor:
    """Keeps one child process running.

    - The command gets one more argument: the file descriptor of its life line, closed when the supervisor is gone.
    - Waits 0.5 s, 1 s, 2 s … 10 s between failures in a row; a child that ran for a minute resets this.
    - SIGTERM and SIGINT go to the child, which has five seconds; then it is killed. The exit code is 0.
    - SIGHUP, SIGUSR1, SIGUSR2 and SIGQUIT are forwarded.
    """

    def __init__(self, command: Sequence[str], *, report: Callable[[str], None]) -> None:
        self._command = tuple(command)
        self._report = report
        self._backoff = Backoff(first_s=FIRST_WAIT_S, longest_s=LONGEST_WAIT_S)
        self._child = 0
        """Zero while there is none."""
        self._exit_code = 0
        """Of the last child that ended; negative for a signal."""

    def run(self) -> int:
        """Run until a termination signal, or until the child reports bad arguments; returns the exit code."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, EXPECTED)
        supervisor_fd, held = os.pipe()
        os.set_inheritable(supervisor_fd, True)
        try:
            return self._keep_running(str(supervisor_fd))
        finally:
            os.close(supervisor_fd)
            os.close(held)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _keep_running(self, supervisor_fd: str) -> int:
        while True:
            started_at = time.monotonic()
            self._start(supervisor_fd)
            if self._has_to_stop(None):
                return 0
            if self._exit_code == EXIT_BAD_CONFIGURATION:
                return EXIT_BAD_CONFIGURATION
            if time.monotonic() - started_at >= HEALTHY_S:
                self._backoff.reset()
            delay_s = self._backoff.next_s()
            how = f"exit code {self._exit_code}" if self._exit_code >= 0 else f"signal {-self._exit_code}"
            self._report(f"the autoscaler process ended with {how}, restarting it in {delay_s:g} s")
            if self._has_to_stop(delay_s):
                return 0

    def _start(self, supervisor_fd: str) -> None:
        command = [*self._command, supervisor_fd]
        environ = {**CHILD_ENVIRONMENT, **os.environ}
        try:
            self._child = os.posix_spawn(command[0], command, environ, setsigmask=(), setsigdef=EXPECTED)
        except OSError as error:  # no memory or no process left: treated as a child that ended at once
            self._exit_code = 1
            self._report(f"cannot start the autoscaler process: {error}")

    def _has_to_stop(self, delay_s: float | None) -> bool:
        """Wait until the child ends (None), or for a time without one; true as soon as a termination signal arrives."""
        deadline_s = None if delay_s is None else time.monotonic() + delay_s
        while (self._child or deadline_s is not None) and (left_s := _left_s(deadline_s)) > 0:
            arrived = signal.sigtimedwait(EXPECTED, left_s)
            number = signal.Signals(arrived.si_signo) if arrived else None
            if number is signal.SIGCHLD:
                self._reap()
            elif number is not None and self._child:
                os.kill(self._child, number)
            if number in ENDING:
                self._terminate_child()
                return True
        return False

    def _terminate_child(self) -> None:
        """Give the child, which has received the signal, its grace period; then kill it."""
        deadline_s = time.monotonic() + GRACE_PERIOD_S
        while self._child and (left_s := _left_s(deadline_s)) > 0:
            if signal.sigtimedwait({signal.SIGCHLD}, left_s) is not None:
                self._reap()
        if self._child:
            self._report(
                f"the autoscaler process did not end within {GRACE_PERIOD_S:g} s of the termination signal, killing it"
            )
            os.kill(self._child, signal.SIGKILL)
            os.waitpid(self._child, 0)

    def _reap(self) -> None:
        """Reap all ended processes, the child and adopted orphans."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._child:
                self._child, self._exit_code = 0, os.waitstatus_to_exitcode(status)


def _left_s(deadline_s: float | None) -> float:
    """Seconds until then; a day if there is no limit, because a wait needs a number."""
    return 86_400.0 if deadline_s is None else deadline_s - time.monotonic()
