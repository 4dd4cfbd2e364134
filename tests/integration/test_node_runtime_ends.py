"""kill -9 of the sandbox, or of any of its processes, leaves no process or mount, in each mode this machine allows."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.embedded_cluster import until
from raytide_sandbox.container_runtime.detect import choose_runtime
from raytide_sandbox.container_runtime.process_tags import MARK_VARIABLE, marked, node_mark
from support.deadlines import PATIENCE
from support.node_modes import BOTH_MODES, needs_namespaces, now

# ruff: noqa: ASYNC220, ASYNC240 - a test may look at files and start a program at once
pytestmark = pytest.mark.timeout(30)

SANDBOX = """
import asyncio, sys
from datetime import UTC, datetime
from pathlib import Path
from raytide_sandbox.container_runtime.detect import choose_runtime
from raytide_sandbox.container_runtime.interface import ContainerConfig, ExecConfig, PodSandboxConfig

DETACH = "(setsid sh -c 'setsid sleep 1000 & exec setsid sleep 1000' &) ; "

async def main(mode, state_dir):
    runtime = (await choose_runtime(mode, state_dir=state_dir, now=lambda: datetime.now(UTC))).runtime
    for name in ("a", "b"):
        pod = await runtime.create_sandbox(PodSandboxConfig(uid=name, namespace="n", name=name, hostname=name))
        log_path = state_dir / f"{name}.log"
        container = await runtime.start_container(
            pod,
            ContainerConfig(name="c", image="debian", argv=("sh", "-c", DETACH + "exec sleep 1000"), log_path=log_path),
        )
        await runtime.exec(container, ExecConfig(argv=("sh", "-c", DETACH + "exec sleep 1000")))
    print("up", flush=True)
    await asyncio.Event().wait()

asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
"""
SLEEPERS_PER_POD = 6


class Running:
    """A sandbox with two pods, each full of processes that left their parents' session twice."""

    def __init__(self, mode: str, directory: Path) -> None:
        self.state_dir = directory / "s"
        self.state_dir.mkdir()
        self.sandbox = subprocess.Popen(
            [sys.executable, "-c", SANDBOX, mode, str(self.state_dir)],
            stdout=subprocess.PIPE,
        )
        assert self.sandbox.stdout is not None
        assert self.sandbox.stdout.readline() == b"up\n"
        self.wait_for_sleepers(2 * SLEEPERS_PER_POD)

    def sleepers(self) -> list[int]:
        return [pid for pid in marked(node_mark(self.state_dir)) if command(pid).startswith(b"sleep\0")]

    def wait_for_sleepers(self, count: int) -> None:
        eventually(lambda: len(self.sleepers()) == count, lambda: f"{len(self.sleepers())} sleep, not {count}")

    def wait_until_nothing_is_left(self) -> None:
        def left() -> list[bytes]:
            return [command(pid) for pid in marked(node_mark(self.state_dir))]

        eventually(lambda: not left(), lambda: f"left: {left()}")

    def named(self, title: str) -> list[int]:
        return [pid for pid in marked(node_mark(self.state_dir)) if comm(pid) == title]

    def end(self) -> None:
        self.sandbox.kill()
        self.sandbox.wait()
        assert self.sandbox.stdout is not None
        self.sandbox.stdout.close()


def command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def comm(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def eventually(is_so: object, explain: object, deadline_s: float = 10.0) -> None:
    end = time.monotonic() + deadline_s * PATIENCE
    while not is_so():  # type: ignore[operator]
        assert time.monotonic() < end, explain()  # type: ignore[operator]
        time.sleep(0.02)


@pytest.fixture(params=BOTH_MODES)
def running(request: pytest.FixtureRequest) -> Iterator[Running]:
    directory = Path(tempfile.mkdtemp(prefix="rt"))
    started = Running(request.param, directory)
    try:
        yield started
    finally:
        started.end()
        started.wait_until_nothing_is_left()
        shutil.rmtree(directory)


def test_kill_9_of_the_sandbox_leaves_nothing(running: Running) -> None:
    running.sandbox.kill()
    running.wait_until_nothing_is_left()


def test_kill_9_leaves_nothing_of_a_container_then_of_a_pod_then_of_all_pods(running: Running) -> None:
    (first,) = running.named("pod a")
    its_own = [pid for pid in running.sleepers() if parent(pid) == first and writes_log(pid)]
    os.kill(min(its_own), signal.SIGKILL)
    running.wait_for_sleepers(SLEEPERS_PER_POD)
    assert running.named("pod a"), "a container's main process is not the pod's first"
    (other,) = running.named("pod b")
    os.kill(other, signal.SIGKILL)
    running.wait_for_sleepers(0)
    assert running.named("pod a"), "the other pod's surroundings stay"
    (holder,) = running.named("raytide-node")
    os.kill(holder, signal.SIGKILL)
    running.wait_until_nothing_is_left()
    assert running.sandbox.poll() is None, "the sandbox itself is told, not killed"


def test_kill_9_of_the_node_s_first_process_leaves_nothing_of_full_pods(running: Running) -> None:
    (holder,) = running.named("raytide-node")
    os.kill(holder, signal.SIGKILL)
    running.wait_until_nothing_is_left()


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def writes_log(pid: int) -> bool:
    """What belongs to the container itself; an exec writes to a pipe."""
    return Path(f"/proc/{pid}/fd/1").readlink().suffix == ".log"


async def test_what_an_earlier_sandbox_left_is_ended_at_the_next_start() -> None:
    with tempfile.TemporaryDirectory(prefix="rt") as directory:
        state_dir = Path(os.path.realpath(directory))
        env = {MARK_VARIABLE: f"{node_mark(state_dir)}uid.1/c/0/"}
        left = subprocess.Popen(["sleep", "1000"], env=env, start_new_session=True)
        other = subprocess.Popen(["sleep", "1000"], env={MARK_VARIABLE: f"{node_mark(state_dir)[:-1]}2:uid.1/c/0/"})
        try:
            # Popen returns when the program has replaced the child, and its environment is there a moment later.
            await until("what was left shows its mark", lambda: left.pid in marked(node_mark(state_dir)))
            choice = await choose_runtime("plain", state_dir=state_dir, now=now)
            try:
                assert left.wait(timeout=5 * PATIENCE) == -signal.SIGKILL
                assert other.poll() is None, "another state directory's"
            finally:
                await choice.runtime.stop()
        finally:
            for one in (left, other):
                one.kill()
                one.wait()


FORBIDDEN = """
import asyncio, os, sys
from datetime import UTC, datetime
from pathlib import Path
from raytide_sandbox.container_runtime import syscalls
from raytide_sandbox.container_runtime.detect import choose_runtime
from raytide_sandbox.container_runtime.interface import ContainerRuntimeError

uid, gid = os.geteuid(), os.getegid()
syscalls.unshare(syscalls.CLONE_NEWUSER)
syscalls.map_to_self(uid, gid)
Path("/proc/sys/user/max_user_namespaces").write_text("0")

async def main(state_dir):
    choice = await choose_runtime("auto", state_dir=state_dir, now=lambda: datetime.now(UTC))
    print(choice.runtime.mode, choice.reason, sep="|")
    await choice.runtime.stop()
    try:
        await choose_runtime("ns", state_dir=state_dir, now=lambda: datetime.now(UTC))
    except ContainerRuntimeError as error:
        print(error)

asyncio.run(main(Path(sys.argv[1])))
"""


@pytest.mark.parametrize("mode", [pytest.param("ns", marks=needs_namespaces())])
def test_where_namespaces_are_forbidden_pods_run_plain_and_the_reason_is_reported(mode: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORBIDDEN, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=20 * PATIENCE,
    )
    chosen, rejected = done.stdout.splitlines()
    assert chosen.startswith("plain|plain: unprivileged namespaces do not work on this machine (")
    assert "No space left on device" in chosen, "the kernel's own words"
    assert rejected.startswith(f"mode {mode} does not work on this machine: ")
