"""Manifests of TrainingJobs and pods that the users of the simulation create.

Minimal plain dicts, a new one for each call, because scenarios edit them. Cooldowns are short, so that scenarios are, and
rebalancing is off unless requested. Used by the scenarios and histories of jobs.
"""

from typing import Any

from raytide.api import trainingjob_constants as constants

from simulation.simulated_kube import NAMESPACE

OTHER_NAMESPACE = "team-b"
COOLDOWN_S = 5


def role(cpu: str, gpu: int = 0) -> dict[str, Any]:
    """The resources of one pod of a role."""
    amounts = {"cpu": cpu, **({constants.GPU: gpu} if gpu else {})}
    return {"resources": {"requests": amounts, "limits": amounts}}


def new_job(
    name: str, low: int, high: int, *, cpu: str = "1", gpu: int = 0, namespace: str = NAMESPACE, **spec: Any
) -> dict[str, Any]:
    """A minimal TrainingJob; `scaling` among the fields of the spec is added to the cooldowns."""
    rests = {"growCooldownSeconds": COOLDOWN_S, "shrinkCooldownSeconds": COOLDOWN_S}
    scaling = {**rests, "rebalance": False, **spec.pop("scaling", {})}
    trainer = {"entrypoint": "python train.py", "min-instance": low, "max-instance": high, **role(cpu, gpu)}
    return {
        "apiVersion": "paddlepaddle.org/v1",
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"scaling": scaling, "trainer": trainer, **spec},
    }


def new_pod(name: str, cpu: str, *, namespace: str = NAMESPACE, job: str = "") -> dict[str, Any]:
    """An external pod; with `job` one with the labels of a job and without its owner reference."""
    labels = (
        {constants.JOB_LABEL: job, constants.ROLE_LABEL: constants.TRAINER, constants.INDEX_LABEL: "77"} if job else {}
    )
    container = {"name": "main", "image": "nginx", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"containers": [container]},
    }
