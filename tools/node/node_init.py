"""First process of the PID namespace of a node: creates the other namespaces, starts the supervisor, reaps orphans.

When it ends, the kernel kills all processes of the node. It ends with the supervisor, which is another process because this one
has to reap all orphans of the node, most of them shims of containerd. Called by node_keeper.py in a forked process.
"""

import os
import sys
from pathlib import Path
from typing import NoReturn

from node_settings import SETTINGS_FILE, NodeSettings, release_output
from raytide_sandbox.container_runtime import syscalls

NAMESPACES = syscalls.CLONE_NEWNS | syscalls.CLONE_NEWNET | syscalls.CLONE_NEWIPC | syscalls.CLONE_NEWUTS
FOLDER = Path(__file__).parent


def main(settings: NodeSettings) -> NoReturn:
    """Run until the supervisor ends, and exit with its exit code."""
    syscalls.unshare(NAMESPACES)
    syscalls.mount(None, "/", flags=syscalls.MS_REC | syscalls.MS_PRIVATE)
    syscalls.mount("proc", "/proc", "proc")
    syscalls.set_hostname(settings.config.name)
    syscalls.set_title("raytide-node")
    supervisor = os.fork()
    if not supervisor:
        syscalls.die_with_parent()
        folders = filter(None, (str(FOLDER), os.environ.get("PYTHONPATH")))
        os.environ["PYTHONPATH"] = os.pathsep.join(folders)  # a supervisor of another folder imports from this one
        program = str(FOLDER / settings.supervisor)
        os.execv(sys.executable, [sys.executable, program, str(settings.state / SETTINGS_FILE)])
    release_output()
    while True:
        ended, status = os.wait()
        if ended == supervisor:
            os._exit(max(0, os.waitstatus_to_exitcode(status)) or (1 if os.WIFSIGNALED(status) else 0))
