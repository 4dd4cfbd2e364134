"""What do the containers of a job run?

With `framework: paddle`, Paddle's launcher and one of its commands, as upstream (TJ §2.2); the launcher finds the user's
program in the environment (`ENTRY`, `TRAINER_PACKAGE`). With every other framework the entrypoint itself, by a shell, in
the workspace; a role without one runs what its image runs. A template may still replace any of it.
"""

from typing import Final

from raytide.api.meta import Manifest
from raytide.api.training_names import MASTER, PSERVER, TRAINER
from raytide.trainingjob.construction.site import Site

LAUNCHER: Final = "paddle_k8s"
_TOLERANT: Final = {MASTER: "start_master", PSERVER: "start_new_pserver", TRAINER: "start_new_trainer"}
_PLAIN: Final = {MASTER: "start_master", PSERVER: "start_pserver", TRAINER: "start_trainer"}


def start_command(site: Site) -> Manifest:
    """`command` and `workingDir` of the main container, as far as they are ours to say."""
    if site.is_launched:
        commands = _TOLERANT if site.is_tolerant_launch else _PLAIN
        return {"command": [LAUNCHER, commands[site.role]]}
    if not site.entrypoint:
        return {}
    workspace = site.job.spec.trainer.workspace
    placed = {"workingDir": workspace} if workspace else {}
    return {"command": shell(site.entrypoint), **placed}


def shell(line: str) -> list[str]:
    """The command that runs one line; the shell is replaced by a simple command, which so receives the signals."""
    return ["/bin/sh", "-c", line]
