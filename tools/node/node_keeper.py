"""Keeper of a node: its parent process, outside of its namespaces.

Reads the settings from standard input, creates the cgroups, starts the first process of the node in a new PID namespace, waits for
its end and removes cgroups and files. With the first process the kernel kills all processes of the node, so that SIGTERM to the
keeper or SIGKILL to the first process ends the node. After SIGKILL to the keeper the kernel ends the node too, and the next start
or `make e2e DOWN=1` removes the empty cgroups. Started by node.py.
"""

import json
import os
import shutil
import signal
import sys
import time

import node_cgroups
import node_init
from node_settings import FIRST_PID_FILE, KEEPER_PID_FILE, SETTINGS_FILE, NodeSettings, Report, release_output
from raytide_sandbox.container_runtime import syscalls
from raytide_sandbox.state_dir import AlreadyRunningError, StateDirectory, start_ticks

CONTROLLERS_FILE = "controllers.json"
"""Controllers that were enabled for groups before the node."""
REMOVAL_S = 10.0
_POLL_S = 0.1


def main() -> int:
    """Run a node until its end; returns the exit code of its supervisor."""
    settings = NodeSettings.from_json(sys.stdin.read())
    if settings.is_tethered:
        syscalls.die_with_parent(signal.SIGTERM)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to its process group; the parent ends the node
    directory = StateDirectory(settings.state)
    directory.create()
    try:
        claim = directory.claim()
    except AlreadyRunningError:
        return _fail(another_runs(settings))
    with claim:
        try:
            return _keep(settings)
        except OSError as error:
            return _fail(f"the node cannot be started or removed: {error}")


def another_runs(settings: NodeSettings) -> str:
    """Error message: no node can start with this state folder."""
    return f"another node runs in {settings.state}: end it with `make e2e DOWN=1`"


def _fail(error: str) -> int:
    print(error, file=sys.stderr)
    Report(error=error).send()
    return 1


def _keep(settings: NodeSettings) -> int:
    clear(settings)
    shutil.rmtree(settings.logs, ignore_errors=True)
    settings.logs.mkdir()
    settings.work.mkdir(mode=0o700)
    (settings.state / SETTINGS_FILE).write_text(settings.to_json())
    before = {str(folder): sorted(node_cgroups.delegated(folder)) for folder in settings.cgroup_folders}
    (settings.state / CONTROLLERS_FILE).write_text(json.dumps(before))
    (settings.state / KEEPER_PID_FILE).write_text(f"{os.getpid()} {start_ticks(os.getpid())}\n")
    try:
        node_cgroups.create(node_cgroups.read(), settings.config.cgroup)
        return _wait_for(_start_first(settings))
    finally:
        if (settings.plane / "logs").exists():
            shutil.copytree(settings.plane / "logs", settings.logs / "control-plane")
        clear(settings)


def _start_first(settings: NodeSettings) -> int:
    """Fork the first process of a new PID namespace; returns its PID here. SIGTERM is blocked until `_wait_for` handles it."""
    keeper = os.getpid()
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    syscalls.unshare(syscalls.CLONE_NEWPID)
    first = os.fork()
    if not first:
        syscalls.die_with_parent()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        if start_ticks(keeper) is not None:
            node_init.main(settings)
        os._exit(1)
    (settings.state / FIRST_PID_FILE).write_text(f"{first}\n")
    release_output()
    return first


def _wait_for(first: int) -> int:
    signal.signal(signal.SIGTERM, lambda *_: os.kill(first, signal.SIGKILL))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    _, status = os.waitpid(first, 0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return max(0, os.waitstatus_to_exitcode(status))


def clear(settings: NodeSettings) -> None:
    """Remove cgroups and files of a node; raises OSError with the first path that cannot be removed."""
    left = node_cgroups.remove(settings.cgroup_folders, settings.config.cgroup)
    if left:
        raise OSError(0, f"processes are left in {left[0]}; cgroup.procs in it lists them")
    deadline = time.monotonic() + REMOVAL_S  # the kernel unmounts with a delay after the end of the last process
    while settings.work.exists():
        shutil.rmtree(settings.work, ignore_errors=time.monotonic() < deadline)
        time.sleep(_POLL_S if settings.work.exists() else 0)
    if (settings.state / CONTROLLERS_FILE).exists():
        node_cgroups.restore(settings.cgroup_folders, json.loads((settings.state / CONTROLLERS_FILE).read_text()))
    for name in (FIRST_PID_FILE, KEEPER_PID_FILE, SETTINGS_FILE, CONTROLLERS_FILE):
        (settings.state / name).unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main())
