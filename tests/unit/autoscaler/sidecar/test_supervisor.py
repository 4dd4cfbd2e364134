"""The supervisor with real processes: small shell scripts as children."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.deadlines import PATIENCE

PATIENCE_S = 20.0 * PATIENCE

PROGRAM = """
import ctypes, sys
from raytide.autoscaler.sidecar import supervisor
ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: orphans are ours
supervisor.FIRST_WAIT_S, supervisor.GRACE_PERIOD_S = 0.05, float(sys.argv[1])
report = lambda line: print(line, file=sys.stderr, flush=True)
sys.exit(supervisor.Supervisor(sys.argv[2:], report=report).run())
"""


class Supervised:
    """A supervisor as a process, and the file that its child writes to."""

    def __init__(self, script: str, journal, *, grace_period_s: float = 5.0) -> None:
        self.journal = journal
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(grace_period_s), "/bin/sh", "-c", script],
            env={**os.environ, "JOURNAL": str(journal)},
            stderr=subprocess.PIPE,
            text=True,
        )

    def lines(self):
        return self.journal.read_text().splitlines() if self.journal.exists() else []

    def until(self, is_so):
        ends_at = time.monotonic() + PATIENCE_S
        while not (found := is_so(self.lines())):
            assert time.monotonic() < ends_at, self.lines()
            time.sleep(0.01)
        return found

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        _, stderr = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, stderr


@pytest.fixture
def supervised(tmp_path):
    started = []

    def start(script, **how):
        started.append(Supervised(script, tmp_path / "journal", **how))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.end()


# The trap comes first: a signal between `echo` and `trap` would end the shell before it writes "told".
LIVES = 'trap "echo told >> $JOURNAL; exit 0" TERM; echo "born $$" >> "$JOURNAL"; while :; do sleep 0.02; done'


def test_a_killed_child_is_started_again(supervised):
    one = supervised(LIVES)
    (first,) = one.until(lambda lines: lines[:1])
    os.kill(int(first.split()[1]), signal.SIGKILL)
    one.until(lambda lines: len(lines) == 2)
    code, stderr = one.end()
    assert code == 0
    assert "ended with signal 9, restarting it" in stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_passed_to_the_child_and_the_supervisor_ends_with_0(supervised, number):
    one = supervised(LIVES.replace("TERM", "TERM INT"))
    one.until(lambda lines: lines)
    assert one.end(number)[0] == 0
    assert one.lines()[-1] == "told"


def test_a_child_that_does_not_listen_is_killed(supervised):
    one = supervised('trap "" TERM; echo "born $$" >> "$JOURNAL"; while :; do sleep 0.02; done', grace_period_s=0.2)
    (line,) = one.until(lambda lines: lines)
    code, stderr = one.end()
    assert code == 0
    assert "killing it" in stderr
    with pytest.raises(ProcessLookupError):
        os.kill(int(line.split()[1]), 0)


def test_bad_arguments_end_it_with_the_childs_code(supervised):
    one = supervised("echo once >> $JOURNAL; exit 2")
    one.process.communicate(timeout=PATIENCE_S)
    assert one.process.returncode == 2
    assert one.lines() == ["once"]


def test_any_other_exit_is_followed_by_a_new_child_with_exponential_backoff(supervised):
    one = supervised("echo again >> $JOURNAL; exit 0")
    one.until(lambda lines: len(lines) >= 4)
    code, stderr = one.end()
    assert code == 0
    rests = [line.rpartition(" in ")[2] for line in stderr.splitlines()]
    assert rests[:3] == ["0.05 s", "0.1 s", "0.2 s"]


def test_a_signal_during_the_backoff_ends_the_supervisor_at_once(supervised):
    one = supervised("echo again >> $JOURNAL; exit 1")
    one.until(lambda lines: len(lines) >= 5)  # the rest is now 0.8 s or more
    began = time.monotonic()
    assert one.end()[0] == 0
    assert time.monotonic() - began < PATIENCE_S / 4


def test_other_signals_are_passed_on(supervised):
    one = supervised(LIVES.replace("TERM", "HUP").replace("exit 0", "exit 3"))
    one.until(lambda lines: lines)
    one.process.send_signal(signal.SIGHUP)
    one.until(lambda lines: "told" in lines)
    one.until(lambda lines: lines.index("told") < len(lines) - 1)  # born again
    assert "ended with exit code 3" in one.end(signal.SIGTERM)[1]


def test_a_program_that_is_not_there_is_tried_again_and_again(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "1", str(tmp_path / "nothing")], stderr=subprocess.PIPE, text=True
    )
    line = process.stderr.readline()
    process.terminate()
    assert process.wait(PATIENCE_S) == 0
    process.stderr.close()
    assert "cannot start the autoscaler process" in line


def test_the_pipe_to_the_child_closes_when_the_supervisor_is_killed(supervised):
    script = 'echo "born $$" >> "$JOURNAL"; read -r _ <&"$0"; echo orphan >> "$JOURNAL"'
    one = supervised(script)
    one.until(lambda lines: lines)
    one.process.kill()
    one.process.communicate(timeout=PATIENCE_S)
    one.until(lambda lines: "orphan" in lines)


def test_orphaned_processes_are_reaped(supervised):
    """PID 1 of a container adopts orphaned processes; here the supervisor is a subreaper instead."""
    orphan = """(sleep 0.05 & echo "orphan $!" >> "$JOURNAL"); """
    one = supervised(orphan + LIVES)
    _, number = one.until(lambda lines: next((line.split() for line in lines if line.startswith("orphan")), None))
    one.until(lambda _: not Path("/proc", number).exists())
    assert one.end()[0] == 0


def test_a_child_gets_defaults_for_malloc_arenas_and_grpc_verbosity_unless_they_are_set(supervised, monkeypatch):
    monkeypatch.setenv("GRPC_VERBOSITY", "DEBUG")
    monkeypatch.delenv("MALLOC_ARENA_MAX", raising=False)
    one = supervised('echo "$MALLOC_ARENA_MAX $GRPC_VERBOSITY" >> "$JOURNAL"; ' + LIVES)
    assert one.until(lambda lines: lines[:1]) == ["1 DEBUG"]
