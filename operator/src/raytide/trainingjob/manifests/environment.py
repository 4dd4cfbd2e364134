"""Environment variables of a job's containers.

Three sets of variables: the pod's identity; with `framework: paddle` Paddle's launcher variables exactly as in TJ §2.2;
and peer addresses, in the variables of Paddle's fleet (TJ §2.8) or, with `framework: torchrun`, of torchrun (`PET_*`).
Variables that the user sets for a role replace these. Counts are those at the pod's creation; only the files of the
membership volume are updated.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any, Final

from raytide.api.meta import Manifest
from raytide.api.pod_template_merge import merged_entries
from raytide.api.trainingjob_constants import MASTER, MASTER_PORT, PSERVER, TRAINER
from raytide.trainingjob.manifests.addresses import OWN_ADDRESS, endpoint, endpoints, host_name, own_host
from raytide.trainingjob.manifests.pod_context import PodContext

MEMBERSHIP_PATH: Final = "/etc/raytide/membership"
LONGEST_VALUE: Final = 100_000
"""Linux starts no program with a variable of 128 KiB or more: a longer list is only in the membership files."""


def environment(context: PodContext) -> list[Manifest]:
    """The main container's variables; `POD_IP` precedes the variables that refer to it."""
    variables = [*identity(context)]
    if context.uses_launcher:
        variables += context.job_context.launcher_variables
    variables += torchrun_variables(context) if context.job.spec.framework == "torchrun" else fleet_variables(context)
    return merged_entries(variables, users_variables(context), "name")


def etcd_environment(context: PodContext) -> list[Manifest]:
    """The etcd container's variables: identity and launcher variables, as upstream."""
    return [*identity(context), *context.job_context.launcher_variables]


def identity(context: PodContext) -> list[Manifest]:
    """Job, role and index of the pod, the master's endpoint, and the directory of the membership files."""
    ours = {
        "RAYTIDE_JOB_NAME": context.job.metadata.name,
        "RAYTIDE_ROLE": context.role,
        "RAYTIDE_INDEX": str(context.index),
    }
    if not context.is_master:
        ours["RAYTIDE_MEMBERSHIP_DIR"] = MEMBERSHIP_PATH
    if context.job.has_master:
        ours["RAYTIDE_MASTER_ENDPOINT"] = (
            f"{own_host(context.config)}:{MASTER_PORT}"
            if context.is_master
            else endpoint(context.job, MASTER, 0, context.config)
        )
    fields = {"NAMESPACE": "metadata.namespace", "POD_IP": "status.podIP", "POD_NAME": "metadata.name"}
    return [*(_field(name, path) for name, path in fields.items()), *_literals(ours)]


def fleet_variables(context: PodContext) -> list[Manifest]:
    """Variables of fleet's role maker: parameter-server mode if the job has parameter servers, else collective mode."""
    if context.is_master:
        return []
    own = f"{OWN_ADDRESS}:{context.job.spec.port}"
    found = {
        "TRAINING_ROLE": "PSERVER" if context.is_pserver else "TRAINER",
        "PADDLE_PORT": str(context.job.spec.port),
        "PADDLE_CURRENT_ENDPOINT": own,
        "PADDLE_TRAINERS_NUM": str(context.size.trainers),
        # A gloo barrier would block forever when the set of processes changes.
        "PADDLE_WITH_GLOO": "0",
    }
    if context.size.pservers and _may_be_listed(context, PSERVER, range(context.size.pservers)):
        found["PADDLE_PSERVERS_IP_PORT_LIST"] = _list_with_self(context, PSERVER, range(context.size.pservers), own)
    if context.is_trainer:
        # Only for trainers: parameter servers start before trainers have addresses, and do not need them.
        found["PADDLE_TRAINER_ID"] = str(context.size.rank_of(context.index))
        if _may_be_listed(context, TRAINER, context.size.ranks):
            found["PADDLE_TRAINER_ENDPOINTS"] = _list_with_self(context, TRAINER, context.size.ranks, own)
    return _literals({name: value for name, value in found.items() if len(value) <= LONGEST_VALUE})


def torchrun_variables(context: PodContext) -> list[Manifest]:
    """Options of torchrun: elastic between the job's minimum and maximum, with rendezvous at the first trainer."""
    if not context.is_trainer:
        return []
    job, spec = context.job, context.job.spec
    rank, first = context.size.rank_of(context.index), min(context.size.ranks, default=context.index)
    rendezvous = own_host(context.config) if context.index == first else host_name(job, TRAINER, first, context.config)
    restarts = 0 if spec.restart_policy == "Never" else spec.backoff_limit
    return _literals(
        {
            "PET_NNODES": f"{spec.trainer.min_instance}:{spec.trainer.ceiling}",
            "PET_NPROC_PER_NODE": str(context.job_context.gpus or 1),
            "PET_NODE_RANK": str(rank),
            "PET_RDZV_BACKEND": "c10d",
            "PET_RDZV_ENDPOINT": f"{rendezvous}:{spec.port}",
            "PET_RDZV_ID": job.metadata.uid or job.metadata.name,
            # Set explicitly: torchrun would derive it from host names, which are ambiguous on the host network.
            "PET_RDZV_CONF": f"is_host={'true' if context.index == first else 'false'}",
            "PET_MAX_RESTARTS": str(restarts),
        }
    )


def users_variables(context: PodContext) -> list[Manifest]:
    """The user's variables: the role's `envs`, overridden by its `env`."""
    return merged_entries(_literals(context.role_spec.envs), context.role_spec.env, "name")


def _may_be_listed(context: PodContext, role: str, indices: Sequence[int]) -> bool:
    """Whether the list may fit into a variable; an estimate that avoids building a list per pod that is too long."""
    one = len(endpoint(context.job, role, indices[0], context.config)) if indices else 0
    return one * len(indices) <= LONGEST_VALUE + one


def _list_with_self(context: PodContext, role: str, indices: Sequence[int], own: str) -> str:
    known = endpoints(context.job, role, indices, context.config)
    if context.role != role:
        return ",".join(known)
    position = bisect_left(indices, context.index)
    is_listed = position < len(indices) and indices[position] == context.index
    return ",".join((*known[:position], own, *known[position + 1 :]) if is_listed else known)


def _literals(values: Mapping[str, str]) -> list[Manifest]:
    return [{"name": name, "value": value} for name, value in values.items()]


def _field(name: str, path: str) -> Manifest:
    source: dict[str, Any] = {"fieldRef": {"fieldPath": path}}
    return {"name": name, "valueFrom": source}
