"""First process of a node's PID namespace: makes the other namespaces, starts the supervisor, waits for orphans.

When it ends, for whatever reason, the kernel ends every process of the node. It ends when the supervisor does. The
supervisor is another process because this one has to wait for all orphans of the node, of which most are shims of
containerd. Called by node_keeper.py in a forked process.
"""

import os
import sys
from pathlib import Path
from typing import NoReturn

from node_settings import FILE, NodeSettings, release_output
from raytide_sandbox.container_runtime import syscalls

NAMESPACES = syscalls.CLONE_NEWNS | syscalls.CLONE_NEWNET | syscalls.CLONE_NEWIPC | syscalls.CLONE_NEWUTS
FOLDER = Path(__file__).parent


def main(settings: NodeSettings) -> NoReturn:
    """Run until the supervisor ends; the exit code is its own."""
    syscalls.unshare(NAMESPACES)
    syscalls.mount(None, "/", flags=syscalls.MS_REC | syscalls.MS_PRIVATE)
    syscalls.mount("proc", "/proc", "proc")
    syscalls.set_hostname(settings.config.name)
    syscalls.set_title("raytide-node")
    supervisor = os.fork()
    if not supervisor:
        syscalls.die_with_parent()
        found = filter(None, (str(FOLDER), os.environ.get("PYTHONPATH")))
        os.environ["PYTHONPATH"] = os.pathsep.join(found)  # a supervisor of another folder uses this one's modules
        program = str(FOLDER / settings.supervisor)
        os.execv(sys.executable, [sys.executable, program, str(settings.state / FILE)])
    release_output()
    while True:
        ended, status = os.wait()
        if ended == supervisor:
            os._exit(max(0, os.waitstatus_to_exitcode(status)) or (1 if os.WIFSIGNALED(status) else 0))
