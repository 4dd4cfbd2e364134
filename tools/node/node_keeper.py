"""Keeper of a node: the one process of it that is not in the node's namespaces.

Takes the settings on its standard input, makes the cgroups, starts the first process of the node in namespaces of its own,
waits for its end and removes all that is left: cgroups and files. The kernel ends every process of the node together with
the first one. So one signal ends a node: SIGTERM to the keeper, or SIGKILL to the first process. After a SIGKILL of the
keeper itself the kernel still ends the node; the next start, or `make e2e DOWN=1`, removes the empty cgroups. Started by
node.py.
"""

import json
import os
import shutil
import signal
import sys
import time

import node_cgroups
import node_init
from node_settings import FILE, FIRST, KEEPER, NodeSettings, Report, release_output
from raytide_sandbox.container_runtime import syscalls
from raytide_sandbox.state_dir import AlreadyRunningError, StateDirectory, start_ticks

CONTROLLERS = "controllers.json"
"""Controllers that the machine passed on to groups before the node."""
REMOVAL_S = 10.0
_POLL_S = 0.1


def main() -> int:
    """Keep one node until its end; the exit code is that of its supervisor."""
    settings = NodeSettings.from_json(sys.stdin.read())
    if settings.is_tethered:
        syscalls.die_with_parent(signal.SIGTERM)
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # a terminal sends it to all; the process that started this one decides
    place = StateDirectory(settings.state)
    place.create()
    try:
        claim = place.claim()
    except AlreadyRunningError:
        return _fail(another_runs(settings))
    with claim:
        try:
            return _keep(settings)
        except OSError as error:
            return _fail(f"the node cannot be kept: {error}")


def another_runs(settings: NodeSettings) -> str:
    """Why no node can start in this folder."""
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
    (settings.state / FILE).write_text(settings.to_json())
    before = {str(folder): sorted(node_cgroups.passed_on(folder)) for folder in settings.cgroup_folders}
    (settings.state / CONTROLLERS).write_text(json.dumps(before))
    (settings.state / KEEPER).write_text(f"{os.getpid()} {start_ticks(os.getpid())}\n")
    try:
        node_cgroups.create(node_cgroups.read(), settings.config.cgroup)
        return _wait_for(_start_first(settings))
    finally:
        _keep_logs(settings)
        clear(settings)


def _start_first(settings: NodeSettings) -> int:
    """Fork the first process of a new PID namespace; its process id here. SIGTERM is blocked until it can end the node."""
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
    (settings.state / FIRST).write_text(f"{first}\n")
    release_output()
    return first


def _wait_for(first: int) -> int:
    signal.signal(signal.SIGTERM, lambda *_: os.kill(first, signal.SIGKILL))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    _, status = os.waitpid(first, 0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return max(0, os.waitstatus_to_exitcode(status))


def _keep_logs(settings: NodeSettings) -> None:
    logs = settings.plane / "logs"
    if logs.exists():
        shutil.copytree(logs, settings.logs / "control-plane")


def clear(settings: NodeSettings) -> None:
    """Remove what a node leaves; raises OSError with the first path that cannot be removed."""
    left = node_cgroups.remove(settings.cgroup_folders, settings.config.cgroup)
    if left:
        raise OSError(0, f"processes are left in {left[0]}; cgroup.procs in it lists them")
    deadline = time.monotonic() + REMOVAL_S  # the kernel unmounts a moment after the last process has ended
    while settings.work.exists():
        shutil.rmtree(settings.work, ignore_errors=time.monotonic() < deadline)
        time.sleep(_POLL_S if settings.work.exists() else 0)
    if (settings.state / CONTROLLERS).exists():
        node_cgroups.restore(settings.cgroup_folders, json.loads((settings.state / CONTROLLERS).read_text()))
    for name in (FIRST, KEEPER, FILE, CONTROLLERS):
        (settings.state / name).unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main())
