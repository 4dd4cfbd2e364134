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
from raytide.api.trainingjob_constants import MASTER, PSERVER, TRAINER
from raytide.trainingjob.manifests.addresses import MASTER_PORT, OWN_ADDRESS, endpoint, endpoints, host_name
from raytide.trainingjob.manifests.pod_context import PodContext

MEMBERSHIP_PATH: Final = "/etc/raytide/membership"
LONGEST_VALUE: Final = 100_000
"""Linux starts no program with a variable of 128 KiB or more: a longer list is only in the membership files."""


def environment(site: PodContext) -> list[Manifest]:
    """The main container's variables; `POD_IP` precedes the variables that refer to it."""
    variables = [*identity(site)]
    if site.is_launched:
        variables += site.of.launcher_variables
    variables += torchrun_variables(site) if site.job.spec.framework == "torchrun" else fleet_variables(site)
    return merged_entries(variables, users_variables(site), "name")


def etcd_environment(site: PodContext) -> list[Manifest]:
    """The etcd container's variables: identity and launcher variables, as upstream."""
    return [*identity(site), *site.of.launcher_variables]


def identity(site: PodContext) -> list[Manifest]:
    """Job, role and index of the pod, the master's endpoint, and the directory of the membership files."""
    ours = {
        "RAYTIDE_JOB_NAME": site.job.metadata.name,
        "RAYTIDE_ROLE": site.role,
        "RAYTIDE_INDEX": str(site.index),
    }
    if not site.is_master:
        ours["RAYTIDE_MEMBERSHIP_DIR"] = MEMBERSHIP_PATH
    if site.job.has_master:
        ours["RAYTIDE_MASTER_ENDPOINT"] = (
            f"{OWN_ADDRESS}:{MASTER_PORT}" if site.is_master else endpoint(site.job, MASTER, 0, site.config)
        )
    fields = {"NAMESPACE": "metadata.namespace", "POD_IP": "status.podIP", "POD_NAME": "metadata.name"}
    return [*(_field(name, path) for name, path in fields.items()), *_literals(ours)]


def fleet_variables(site: PodContext) -> list[Manifest]:
    """Variables of fleet's role maker: parameter-server mode if the job has parameter servers, else collective mode."""
    if site.is_master:
        return []
    own = f"{OWN_ADDRESS}:{site.job.spec.port}"
    found = {
        "TRAINING_ROLE": "PSERVER" if site.is_pserver else "TRAINER",
        "PADDLE_PORT": str(site.job.spec.port),
        "PADDLE_CURRENT_ENDPOINT": own,
        "PADDLE_TRAINERS_NUM": str(site.size.trainers),
        # A gloo barrier would block forever when the set of processes changes.
        "PADDLE_WITH_GLOO": "0",
    }
    if site.size.pservers and _may_be_listed(site, PSERVER, range(site.size.pservers)):
        found["PADDLE_PSERVERS_IP_PORT_LIST"] = _list_with_self(site, PSERVER, range(site.size.pservers), own)
    if site.is_trainer:
        # Only for trainers: parameter servers start before trainers have addresses, and do not need them.
        found["PADDLE_TRAINER_ID"] = str(site.size.rank_of(site.index))
        if _may_be_listed(site, TRAINER, site.size.ranks):
            found["PADDLE_TRAINER_ENDPOINTS"] = _list_with_self(site, TRAINER, site.size.ranks, own)
    return _literals({name: value for name, value in found.items() if len(value) <= LONGEST_VALUE})


def torchrun_variables(site: PodContext) -> list[Manifest]:
    """Options of torchrun: elastic between the job's minimum and maximum, with rendezvous at the first trainer."""
    if not site.is_trainer:
        return []
    job, spec = site.job, site.job.spec
    rank, first = site.size.rank_of(site.index), min(site.size.ranks, default=site.index)
    meeting = OWN_ADDRESS if site.index == first else host_name(job, TRAINER, first, site.config)
    restarts = 0 if spec.restart_policy == "Never" else spec.backoff_limit
    return _literals(
        {
            "PET_NNODES": f"{spec.trainer.min_instance}:{spec.trainer.ceiling}",
            "PET_NPROC_PER_NODE": str(site.of.gpus or 1),
            "PET_NODE_RANK": str(rank),
            "PET_RDZV_BACKEND": "c10d",
            "PET_RDZV_ENDPOINT": f"{meeting}:{spec.port}",
            "PET_RDZV_ID": job.metadata.uid or job.metadata.name,
            # Set explicitly: torchrun would derive it from host names, which are ambiguous on the host network.
            "PET_RDZV_CONF": f"is_host={'true' if site.index == first else 'false'}",
            "PET_MAX_RESTARTS": str(restarts),
        }
    )


def users_variables(site: PodContext) -> list[Manifest]:
    """The user's variables: the role's `envs`, overridden by its `env`."""
    return merged_entries(_literals(site.role_spec.envs), site.role_spec.env, "name")


def _may_be_listed(site: PodContext, role: str, indices: Sequence[int]) -> bool:
    """Whether the list may fit into a variable; an estimate that avoids building a list per pod that is too long."""
    one = len(endpoint(site.job, role, indices[0], site.config)) if indices else 0
    return one * len(indices) <= LONGEST_VALUE + one


def _list_with_self(site: PodContext, role: str, indices: Sequence[int], own: str) -> str:
    known = endpoints(site.job, role, indices, site.config)
    if site.role != role:
        return ",".join(known)
    position = bisect_left(indices, site.index)
    is_listed = position < len(indices) and indices[position] == site.index
    return ",".join((*known[:position], own, *known[position + 1 :]) if is_listed else known)


def _literals(values: Mapping[str, str]) -> list[Manifest]:
    return [{"name": name, "value": value} for name, value in values.items()]


def _field(name: str, path: str) -> Manifest:
    source: dict[str, Any] = {"fieldRef": {"fieldPath": path}}
    return {"name": name, "valueFrom": source}
