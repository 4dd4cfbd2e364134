"""Resources of one pod of a job's role, and the classification of GPU and gang jobs.

Takes a role as written and returns `requests` and `limits` as Kubernetes will count them: the old GPU name becomes the
current one (TJ §3 row 18), a limit without a request is the request too, an extended resource is the same in both, and
the role's template is merged in. Quantities stay as written and are not validated here. Shared by pod construction,
validation and fair sharing, so that they cannot differ.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from raytide.api.gang_admission import gang_timeouts
from raytide.api.meta import Manifest
from raytide.api.quantity import Quantity, QuantityError
from raytide.api.trainingjob import Resources, RoleSpec, TrainingJob
from raytide.api.trainingjob_constants import GPU, MASTER, OLD_GPU, TRAINER

Amounts: TypeAlias = Mapping[str, str | int | float]

DEFAULT_MASTER: Final = Resources(
    requests={"cpu": "1", "memory": "500Mi"},
    limits={"cpu": "2", "memory": "1Gi"},
)
"""What upstream gives every master; here it applies where the spec sets no resources (TJ §3 row 3)."""


def role_resources(job: TrainingJob, role: str) -> Resources:
    """Requests and limits of the main container of one pod of the role."""
    spec = job.role(role)
    if spec is None:
        return DEFAULT_MASTER if role == MASTER and job.has_master else Resources()
    written = with_template(spec, role)
    is_bare_master = role == MASTER and not written.requests and not written.limits
    return DEFAULT_MASTER if is_bare_master else normalised(written)


def with_template(spec: RoleSpec, role: str) -> Resources:
    """The role's resources, as written, merged with those of the container named after the role in its template."""
    container = _container(spec.template, role)
    if "resources" not in container:
        return spec.resources
    over = container["resources"]
    return Resources(
        requests=_merged(spec.resources.requests, _part(over, "requests")),
        limits=_merged(spec.resources.limits, _part(over, "limits")),
    )


def normalised(resources: Resources) -> Resources:
    """A role's resources under current names, with every request and limit that Kubernetes would default."""
    requests, limits = _renamed(resources.requests), _renamed(resources.limits)
    for name, amount in limits.items():
        requests.setdefault(name, amount)
    for name, amount in requests.items():
        if is_extended(name):
            limits.setdefault(name, amount)
    return Resources(requests=requests, limits=limits)


def is_amount(value: object) -> bool:
    """Whether the type is that of a quantity: text or a number, which true and false are in Python."""
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def is_extended(name: str) -> bool:
    """Whether it is an extended resource, such as a GPU: whole units that cannot be overcommitted."""
    return "/" in name and "kubernetes.io/" not in name


def gpus_per_trainer(job: TrainingJob, gpus: frozenset[str]) -> int:
    """Number of GPUs of one trainer, over all names in `gpus`; an invalid quantity counts as 0."""
    return sum(_whole(amount) for name, amount in role_resources(job, TRAINER).limits.items() if name in gpus)


def is_gpu_job(job: TrainingJob, gpus: frozenset[str]) -> bool:
    """Whether its trainers need GPUs (TJ §2.1)."""
    return gpus_per_trainer(job, gpus) > 0


def is_gang(job: TrainingJob, gpus: frozenset[str]) -> bool:
    """Whether the job starts only when there is capacity for its whole minimum (TJ §3 row 11).

    That includes an optimistic job after a gang time-out, until its minimum has run: two partly started jobs could
    block each other forever, whereas of two gangs the older one starts (FD:SH-B14).
    """
    if gang_timeouts(job) > 0:
        return True
    policy = job.spec.start_policy
    return is_gpu_job(job, gpus) if policy is None else policy == "Gang"


def _renamed(amounts: Amounts) -> dict[str, str | int | float]:
    """Replace the old GPU name; the current name takes precedence where both are set."""
    renamed = {GPU if name == OLD_GPU else name: amount for name, amount in amounts.items()}
    return {**renamed, GPU: amounts[GPU]} if GPU in amounts else renamed


def _part(over: Any, part: str) -> Any:
    """The template's requests or limits: None if the template removes them."""
    if over is None:
        return None
    return over.get(part, {}) if isinstance(over, dict) else {}


def _merged(under: Amounts, over: Any) -> dict[str, Any]:
    """A merge patch (RFC 7386): null removes. Other values that are no amounts are left out; validation reports them."""
    if over is None:
        return {}
    merged = {**under, **(over if isinstance(over, dict) else {})}
    return {name: amount for name, amount in merged.items() if is_amount(amount)}


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
