"""How much does one pod of a job's role ask for, and is that a GPU job?

Takes a role as written and gives `requests` and `limits` as Kubernetes will count them: the old GPU name read as today's
(TJ §3 row 18), a limit without a request is the request too, an extended resource is the same in both, and what the
role's template says about its container counts. Quantities stay as they were spelled; nothing is judged here. Pod
construction, validation and the sharing pass all ask here, so that they cannot differ.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from raytide.api.job_admission import gang_timeouts
from raytide.api.meta import Manifest
from raytide.api.quantity import Quantity, QuantityError
from raytide.api.training_names import GPU, MASTER, OLD_GPU, TRAINER
from raytide.api.trainingjob import Resources, RoleSpec, TrainingJob

Amounts: TypeAlias = Mapping[str, str | int | float]

DEFAULT_MASTER: Final = Resources(
    requests={"cpu": "1", "memory": "500Mi"},
    limits={"cpu": "2", "memory": "1Gi"},
)
"""What upstream gives every master; ours gets it where nothing is said (TJ §3 row 3)."""


def role_resources(job: TrainingJob, role: str) -> Resources:
    """What the main container of one pod of the role asks for."""
    spec = job.role(role)
    if spec is None:
        return DEFAULT_MASTER if role == MASTER and job.has_master else Resources()
    written = with_template(spec, role)
    is_bare_master = role == MASTER and not written.requests and not written.limits
    return DEFAULT_MASTER if is_bare_master else normalised(written)


def with_template(spec: RoleSpec, role: str) -> Resources:
    """The role's resources with those of its template's container of the role's name over them, as written."""
    over = _container(spec.template, role).get("resources")
    if not isinstance(over, dict):
        return spec.resources
    return Resources(
        requests=_merged(spec.resources.requests, over.get("requests")),
        limits=_merged(spec.resources.limits, over.get("limits")),
    )


def normalised(resources: Resources) -> Resources:
    """In today's names, with every request that Kubernetes would fill in."""
    requests, limits = _renamed(resources.requests), _renamed(resources.limits)
    for name, amount in limits.items():
        requests.setdefault(name, amount)
    for name, amount in requests.items():
        if is_extended(name):
            limits.setdefault(name, amount)
    return Resources(requests=requests, limits=limits)


def is_extended(name: str) -> bool:
    """Whether Kubernetes counts it in whole pieces that cannot be overcommitted: a GPU, a device."""
    return "/" in name and "kubernetes.io/" not in name


def gpus_per_trainer(job: TrainingJob, gpus: frozenset[str]) -> int:
    """How many GPUs one trainer needs, of all the names that mean one; what cannot be read counts as none."""
    return sum(_whole(amount) for name, amount in role_resources(job, TRAINER).limits.items() if name in gpus)


def is_gpu_job(job: TrainingJob, gpus: frozenset[str]) -> bool:
    """Whether its trainers need GPUs (TJ §2.1)."""
    return gpus_per_trainer(job, gpus) > 0


def is_gang(job: TrainingJob, gpus: frozenset[str]) -> bool:
    """Whether it begins only when all of its minimum has room (TJ §3 row 11).

    So does a job that took its chance in vain, until its minimum has run: two halves of jobs would hold each other up for
    ever, and of two gangs the older one begins (FD:SH-B14).
    """
    if gang_timeouts(job) > 0:
        return True
    policy = job.spec.start_policy
    return is_gpu_job(job, gpus) if policy is None else policy == "Gang"


def _renamed(amounts: Amounts) -> dict[str, str | int | float]:
    """Today's name wins where both are there."""
    renamed = {GPU if name == OLD_GPU else name: amount for name, amount in amounts.items()}
    return {**renamed, GPU: amounts[GPU]} if GPU in amounts else renamed


def _merged(under: Amounts, over: Any) -> dict[str, Any]:
    """A merge patch of one level (RFC 7386); what is no amount at all is left to the API server."""
    merged = {**under, **(over if isinstance(over, dict) else {})}
    return {name: amount for name, amount in merged.items() if isinstance(amount, str | int | float)}


def _container(template: Manifest | None, name: str) -> Manifest:
    spec = (template or {}).get("spec")
    containers = spec.get("containers") if isinstance(spec, dict) else None
    found = containers if isinstance(containers, list) else ()
    return next((each for each in found if isinstance(each, dict) and each.get("name") == name), {})


def _whole(amount: str | float) -> int:
    try:
        return max(0, Quantity.parse(amount).ceil_to_int())
    except QuantityError:
        return 0
