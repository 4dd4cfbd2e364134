"""What do the containers of a job find in their environment?

Three sets of variables: who they are, for everybody; Paddle's old names for its launcher, to the letter of TJ §2.2, with
`framework: paddle`; and the addresses of peers, in the names that Paddle's fleet reads (TJ §2.8) or, with `framework:
torchrun`, torchrun (`PET_*`). What the user sets for a role takes the place of ours. Counts are those at the pod's
creation: only the files of the membership volume are live.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any, Final

from raytide.api.meta import Manifest
from raytide.api.template_merge import merged_entries
from raytide.api.training_names import MASTER, PSERVER, TRAINER
from raytide.trainingjob.construction.addresses import MASTER_PORT, OWN_ADDRESS, endpoint, endpoints, host_name
from raytide.trainingjob.construction.site import Site

MEMBERSHIP_PATH: Final = "/etc/raytide/membership"
LONGEST_VALUE: Final = 100_000
"""Linux starts no program with a variable of 128 KiB or more: a longer list stands in the files alone."""


def environment(site: Site) -> list[Manifest]:
    """The main container's variables; what `$(POD_IP)` needs comes first."""
    variables = [*identity(site)]
    if site.is_launched:
        variables += site.of.launcher_variables
    variables += torchrun_variables(site) if site.job.spec.framework == "torchrun" else fleet_variables(site)
    return merged_entries(variables, users_variables(site), "name")


def etcd_environment(site: Site) -> list[Manifest]:
    """Those of the container beside the master: as upstream, the same as for others."""
    return [*identity(site), *site.of.launcher_variables]


def identity(site: Site) -> list[Manifest]:
    """Which pod of which job this is, and where to read more."""
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


def fleet_variables(site: Site) -> list[Manifest]:
    """What fleet's role maker reads: parameter-server mode where there are parameter servers, else collective mode."""
    if site.is_master:
        return []
    own = f"{OWN_ADDRESS}:{site.job.spec.port}"
    found = {
        "TRAINING_ROLE": "PSERVER" if site.is_pserver else "TRAINER",
        "PADDLE_PORT": str(site.job.spec.port),
        "PADDLE_CURRENT_ENDPOINT": own,
        "PADDLE_TRAINERS_NUM": str(site.size.trainers),
        # A barrier among processes that come and go would wait for ever.
        "PADDLE_WITH_GLOO": "0",
    }
    if site.size.pservers and _may_be_listed(site, PSERVER, range(site.size.pservers)):
        found["PADDLE_PSERVERS_IP_PORT_LIST"] = _list_with_self(site, PSERVER, range(site.size.pservers), own)
    if site.is_trainer:
        # Parameter servers start before trainers have addresses, and need none of them.
        found["PADDLE_TRAINER_ID"] = str(site.size.rank_of(site.index))
        if _may_be_listed(site, TRAINER, site.size.ranks):
            found["PADDLE_TRAINER_ENDPOINTS"] = _list_with_self(site, TRAINER, site.size.ranks, own)
    return _literals({name: value for name, value in found.items() if len(value) <= LONGEST_VALUE})


def torchrun_variables(site: Site) -> list[Manifest]:
    """The options of torchrun: it lets agents come and go between the bounds, and meets at the first trainer."""
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
            # Said, not guessed from host names, which lie where pods share a network.
            "PET_RDZV_CONF": f"is_host={'true' if site.index == first else 'false'}",
            "PET_MAX_RESTARTS": str(restarts),
        }
    )


def users_variables(site: Site) -> list[Manifest]:
    """The role's `envs`, then its `env`."""
    return merged_entries(_literals(site.said.envs), site.said.env, "name")


def _may_be_listed(site: Site, role: str, indices: Sequence[int]) -> bool:
    """False where the list is too long for a variable whatever is in it: it is not even built then, once per pod."""
    one = len(endpoint(site.job, role, indices[0], site.config)) if indices else 0
    return one * len(indices) <= LONGEST_VALUE + one


def _list_with_self(site: Site, role: str, indices: Sequence[int], own: str) -> str:
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
