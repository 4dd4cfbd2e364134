"""Who starts the autoscaler again when it ends?

Runs one command as a child and starts it again, with back-off, whenever it ends, because the head pod of an autoscaled
cluster has restartPolicy Never and that binds every container in it. It passes signals on, buries orphans as the first
program of a container must, ends with 0 after SIGTERM or SIGINT, and with the child's own code when the child says that
its arguments are bad. A child that outlives it finds its life line cut and ends too. Called by cli/autoscaler.py; it
needs nothing but the standard library, so that it takes next to no memory (D12).
"""

import os
import signal
import time
from collections.abc import Callable, Sequence
from typing import Final

from raytide.runtime.backoff import Backoff

BAD_ARGUMENTS: Final = 2
"""Exit code of a child that would fail in the same way for ever."""
FIRST_WAIT_S: Final = 0.5
LONGEST_WAIT_S: Final = 10.0
"""Shorter than a liveness probe's patience: a container that a probe ended does not come back."""
HEALTHY_S: Final = 60.0
"""A child that lived so long was well: back-off starts anew after it."""
LAST_WORDS_S: Final = 5.0
"""So long may a child take to end when it is told to."""
ENDING: Final = frozenset({signal.SIGTERM, signal.SIGINT})
PASSED_ON: Final = frozenset({signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT})
EXPECTED: Final = ENDING | PASSED_ON | {signal.SIGCHLD}

CHILDS_ENVIRONMENT: Final = {"MALLOC_ARENA_MAX": "1", "GRPC_VERBOSITY": "NONE"}
"""For the child, unless the container says otherwise, and too late to be said inside it: its threads, which are gRPC's, keep
no heaps of their own, and gRPC does not write its own lines between ours, which tell all that its errors do."""


class Supervisor:
    """One child, for ever.

    - The command gets one more argument: the file descriptor of its life line, which closes when we are gone.
    - Waits 0.5 s, 1 s, 2 s … 10 s between failures in a row; a child that lived for a minute starts that anew.
    - SIGTERM and SIGINT go to the child, which may take five seconds; then it is killed. The exit code is 0.
    - Other signals that people send to programs are passed on.
    """

    def __init__(self, command: Sequence[str], *, say: Callable[[str], None]) -> None:
        self._command = tuple(command)
        self._say = say
        self._backoff = Backoff(first_s=FIRST_WAIT_S, longest_s=LONGEST_WAIT_S)
        self._child = 0
        """Zero while there is none."""
        self._exit_code = 0
        """Of the last child that ended; negative for a signal."""

    def run(self) -> int:
        """Until told to end, or the child says that its arguments are bad; returns the exit code."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, EXPECTED)
        life_line, held = os.pipe()
        os.set_inheritable(life_line, True)
        try:
            return self._keep_running(str(life_line))
        finally:
            os.close(life_line)
            os.close(held)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _keep_running(self, life_line: str) -> int:
        while True:
            started_at = time.monotonic()
            self._start(life_line)
            if self._is_told_to_end(None):
                return 0
            if self._exit_code == BAD_ARGUMENTS:
                return BAD_ARGUMENTS
            if time.monotonic() - started_at >= HEALTHY_S:
                self._backoff.reset()
            rest_s = self._backoff.next_s()
            self._say(f"the autoscaler ended with {_words(self._exit_code)}, starting it again in {rest_s:g} s")
            if self._is_told_to_end(rest_s):
                return 0

    def _start(self, life_line: str) -> None:
        command = [*self._command, life_line]
        environ = {**CHILDS_ENVIRONMENT, **os.environ}
        try:
            self._child = os.posix_spawn(command[0], command, environ, setsigmask=(), setsigdef=EXPECTED)
        except OSError as error:  # no memory, no process left: as good as a child that ended at once
            self._exit_code = 1
            self._say(f"the autoscaler cannot be started: {error}")

    def _is_told_to_end(self, rest_s: float | None) -> bool:
        """Wait until there is no child (None), or for a while without one; true as soon as we are told to end."""
        ends_at = None if rest_s is None else time.monotonic() + rest_s
        while (self._child or ends_at is not None) and (left_s := _left_s(ends_at)) > 0:
            arrived = signal.sigtimedwait(EXPECTED, left_s)
            number = signal.Signals(arrived.si_signo) if arrived else None
            if number is signal.SIGCHLD:
                self._bury()
            elif number is not None and self._child:
                os.kill(self._child, number)
            if number in ENDING:
                self._let_end()
                return True
        return False

    def _let_end(self) -> None:
        """The child knows; it may take a moment."""
        ends_at = time.monotonic() + LAST_WORDS_S
        while self._child and (left_s := _left_s(ends_at)) > 0:
            if signal.sigtimedwait({signal.SIGCHLD}, left_s) is not None:
                self._bury()
        if self._child:
            self._say(f"the autoscaler did not end in {LAST_WORDS_S:g} s and is killed")
            os.kill(self._child, signal.SIGKILL)
            os.waitpid(self._child, 0)

    def _bury(self) -> None:
        """Everybody who has ended, ours or handed to us."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._child:
                self._child, self._exit_code = 0, os.waitstatus_to_exitcode(status)


def _left_s(ends_at: float | None) -> float:
    """Seconds until then; a day when there is no end, because a wait needs a number."""
    return 86_400.0 if ends_at is None else ends_at - time.monotonic()


def _words(exit_code: int) -> str:
    return f"code {exit_code}" if exit_code >= 0 else f"signal {-exit_code}"
