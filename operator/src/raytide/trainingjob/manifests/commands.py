"""Commands of a job's containers.

With `framework: paddle` a container runs Paddle's launcher with one of its commands, as upstream (TJ §2.2); the
launcher reads the user's program from the environment (`ENTRY`, `TRAINER_PACKAGE`). With other frameworks it runs the
entrypoint in a shell, in the trainer's workspace; a role without an entrypoint runs the image's command. A template may
override this.
"""

from typing import Final

from raytide.api.meta import Manifest
from raytide.api.trainingjob_constants import MASTER, PSERVER, TRAINER
from raytide.trainingjob.manifests.pod_context import PodContext

LAUNCHER: Final = "paddle_k8s"
_TOLERANT: Final = {MASTER: "start_master", PSERVER: "start_new_pserver", TRAINER: "start_new_trainer"}
_PLAIN: Final = {MASTER: "start_master", PSERVER: "start_pserver", TRAINER: "start_trainer"}


def start_command(context: PodContext) -> Manifest:
    """`command` and `workingDir` of the main container; empty when the image's command applies."""
    if context.uses_launcher:
        commands = _TOLERANT if context.is_tolerant_launch else _PLAIN
        return {"command": [LAUNCHER, commands[context.role]]}
    if not context.entrypoint:
        return {}
    workspace = context.job.spec.trainer.workspace
    placed = {"workingDir": workspace} if workspace else {}
    return {"command": shell(context.entrypoint), **placed}


def shell(line: str) -> list[str]:
    """The command that runs one shell line; a shell execs a single simple command, which then receives the signals."""
    return ["/bin/sh", "-c", line]
