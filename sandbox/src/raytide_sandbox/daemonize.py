"""Starting the sandbox as a background process, and stopping it.

`start` runs `raytide sandbox serve` in a new session and returns when the server reports ready, or raises with a
one-line reason. `stop` sends SIGTERM to the recorded process, SIGKILL after a timeout, and returns when no process is
left. Both signal only the process in the record, identified by start time through a pidfd, and processes that carry the
sandbox's mark. Called by the command line.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from raytide_sandbox.container_runtime import process_tags
from raytide_sandbox.state_dir import AlreadyRunningError, Record, StateDirectory, StateLock, start_ticks

GENTLE_END_S: Final = 20.0
KILLED_END_S: Final = 5.0
REPORT_S: Final = 15.0
"""For the server to end what it has started after its time-out, and to report."""
START_PATIENCE_S: Final = 60.0
EMBEDDED: Final = "embedded"
KUBERNETES: Final = "kubernetes"
APIS: Final = (EMBEDDED, KUBERNETES)
ALREADY_RUNNING: Final = "AlreadyRunning"
_RETRY_S: Final = 0.02
_LOG_TAIL_LINES: Final = 5


class LaunchError(Exception):
    """The sandbox did not start or does not end; the text is the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The user's choices."""

    nodes: int = 3
    node_cpu: str = "8"
    node_memory: str = "32Gi"
    isolation: str = "auto"
    port: int = 0
    has_crds: bool = True
    api: str = EMBEDDED
    has_audit: bool = False
    timeout_s: float = 600.0
    """Longest start, in seconds."""
    images: tuple[str, ...] = ()
    """`NAME=FOLDER`: Python environments of this machine that replace container images."""

    def arguments(self) -> list[str]:
        """The same choices as command-line arguments."""
        chosen = [f"--nodes={self.nodes}", f"--node-cpu={self.node_cpu}", f"--node-memory={self.node_memory}"]
        chosen += [f"--isolation={self.isolation}", f"--port={self.port}", f"--timeout={self.timeout_s}"]
        chosen += [f"--api={self.api}", "--audit" if self.has_audit else "--no-audit"]
        chosen += [f"--image={given}" for given in self.images]
        return [*chosen, "--crds" if self.has_crds else "--no-crds"]


def start(settings: Settings, state: StateDirectory) -> Record:
    """Start a sandbox in the background and wait until it is ready; raises AlreadyRunningError or LaunchError.

    The server ends a start that makes no progress or exceeds the time-out, and reports why; a server that does not even
    report is killed.
    """
    deadline_s = settings.timeout_s + REPORT_S
    state.create()
    if state.is_claimed():
        raise AlreadyRunningError(str(state.path))
    if state.log.exists():
        state.log.replace(state.log.with_suffix(".log.1"))
    read_end, write_end = os.pipe()
    with os.fdopen(read_end, "rb") as answers:
        server = _spawn(settings, state, write_end)
        os.close(write_end)
        try:
            answer = _read_answer(answers.fileno(), deadline_s)
        except KeyboardInterrupt:
            server.terminate()
            raise
    if answer is None:
        server.kill()
        server.wait()
        _clean_up(state)
        raise LaunchError(f"the sandbox did not answer within {deadline_s:g} s\n{_log_tail(state.log)}")
    record = state.read_record()
    if answer.get("ready") and record is not None:
        server.returncode = 0  # the server outlives this process: no ResourceWarning about a running child
        return record
    server.wait()
    if answer.get("error") == ALREADY_RUNNING:
        raise AlreadyRunningError(str(state.path))
    reason = answer.get("error") or "the sandbox ended while starting"
    raise LaunchError(f"{reason}\n{_log_tail(state.log)}" if answer.get("is_in_log", "error" not in answer) else reason)


def _spawn(settings: Settings, state: StateDirectory, ready_fd: int) -> subprocess.Popen[bytes]:
    """Start the server in a new session, so that closing the terminal does not end it."""
    command = [sys.executable, "-P", "-m", "raytide", "sandbox", "serve", *settings.arguments()]
    command += [f"--state-dir={state.path}", f"--ready-fd={ready_fd}"]
    with state.log.open("ab") as log:
        return subprocess.Popen(  # noqa: S603 - our own interpreter and module
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=[ready_fd],
            start_new_session=True,
            cwd="/",
        )


def _read_answer(descriptor: int, deadline_s: float) -> dict[str, Any] | None:
    """The server's one-line JSON answer; empty when it ended without one, None after `deadline_s`."""
    text = b""
    end = time.monotonic() + deadline_s
    while b"\n" not in text:
        if not select.select([descriptor], [], [], max(0.0, end - time.monotonic()))[0]:
            return None
        chunk = os.read(descriptor, 4096)
        if not chunk:
            return {}
        text += chunk
    answer: dict[str, Any] = json.loads(text)
    return answer


def report_to_parent(descriptor: int | None, **answer: object) -> None:
    """Report the outcome of the start to the process that called `start`; does nothing without a descriptor."""
    if descriptor is not None:
        with contextlib.suppress(OSError):
            os.write(descriptor, json.dumps(answer).encode() + b"\n")
            os.close(descriptor)


def stop(state: StateDirectory) -> bool:
    """End the sandbox and remove its files; False when none was running. Raises LaunchError if it does not end."""
    record = state.read_record()
    was_running = state.is_claimed()
    if record is not None and record.is_alive:
        _end(record)
    if not state.path.is_dir():
        return was_running
    with _claim(state):
        _clean_up(state)
        state.clear()
    return was_running


def _end(record: Record) -> None:
    """Send SIGTERM, then SIGKILL, to the process of the record."""
    try:
        descriptor = os.pidfd_open(record.pid)
    except ProcessLookupError:
        return
    try:
        if start_ticks(record.pid) != record.start_ticks:
            return
        for number, patience_s in ((signal.SIGTERM, GENTLE_END_S), (signal.SIGKILL, KILLED_END_S)):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, number)
            if select.select([descriptor], [], [], patience_s)[0]:
                return
    finally:
        os.close(descriptor)
    raise LaunchError(f"process {record.pid} does not end, not even by SIGKILL")


def _claim(state: StateDirectory) -> StateLock:
    """Take the lock as soon as it is free; a sandbox that is still starting is ended once its record exists."""
    end = time.monotonic() + START_PATIENCE_S
    while True:
        try:
            return state.claim()
        except AlreadyRunningError:
            record = state.read_record()
            if record is not None and record.is_alive:
                _end(record)
            if time.monotonic() > end:
                raise LaunchError(f"a sandbox is starting in {state.path}; try again when it is up") from None
            time.sleep(_RETRY_S)


def _clean_up(state: StateDirectory) -> None:
    """Kill the processes that carry this sandbox's mark; usually the kernel has ended them already."""
    mark = process_tags.node_mark(state.scratch)
    left = process_tags.kill_all(lambda: process_tags.marked(mark))
    if left:
        raise LaunchError(f"processes of the sandbox do not end: {', '.join(map(str, sorted(left)))}")


def _log_tail(log: Path) -> str:
    with contextlib.suppress(OSError):
        return "\n".join(log.read_text(errors="replace").splitlines()[-_LOG_TAIL_LINES:])
    return ""
