"""What is wrong with what a TrainingJob asks for its pods?

Takes the job, gives the faults of resources and templates that can be known before any pod is made: amounts that are
none, requests above limits, an elastic job whose trainers ask for nothing, templates that take away what the job needs.
What only the API server knows is left to it, and told in its words. Pure. Called by validation.py only; rules TJ §3 rows
5 and 18, §8.
"""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

from raytide.api.faults import Violation
from raytide.api.job_shape import priority_class_of
from raytide.api.meta import Manifest
from raytide.api.quantity import Quantity, QuantityError
from raytide.api.training_names import INVALID_SPEC, PSERVER, ROLES, TRAINER
from raytide.api.training_resources import is_extended, role_resources, with_template
from raytide.api.trainingjob import Resources, RoleSpec, TrainingJob

_STANDARD: Final = re.compile(r"(cpu|memory|ephemeral-storage|hugepages-.+)\Z")
"""Resources without a domain that a container may ask for."""
_LOOKS_LIKE_A_GPU: Final = re.compile(r"gpu|/mig-", re.IGNORECASE)
_OURS: Final = {
    "hostname": "by which the others find the pod",
    "subdomain": "by which the others find the pod",
}
"""Fields of a pod that a template may not take -> what they are for."""


def pod_violations(job: TrainingJob) -> Iterator[Violation]:
    """The faults of all roles, in the order of the spec."""
    for role in ROLES:
        spec = job.role(role)
        if spec is None:
            continue
        faults = list(_amounts(job, role, spec))
        yield from faults
        if role == TRAINER and job.is_elastic and not faults and not _asks_for_something(role_resources(job, role)):
            message = (
                "asks for nothing, so that nobody could say how many trainers have room; write requests, or make "
                "max-instance equal to min-instance"
            )
            yield _fault("TJ:3-5", f"spec.{role}.resources", message)
        yield from _template(spec, f"spec.{role}")


def pod_warnings(job: TrainingJob, gpus: frozenset[str]) -> Iterator[Violation]:
    """What is odd about the pods of any role."""
    for role in ROLES:
        spec = job.role(role)
        if spec is None:
            continue
        resources = role_resources(job, role)
        for name in sorted({*resources.requests, *resources.limits} - gpus):
            if is_extended(name) and _LOOKS_LIKE_A_GPU.search(name):
                known = ", ".join(sorted(gpus)) or "none"
                message = (
                    f"has {name}, which is no GPU to the operator (it knows {known}): the job does not wait for all of its "
                    "minimum; name it among the operator's GPUs, or set spec.startPolicy to Gang"
                )
                yield _fault("TJ:3-18", f"spec.{role}.resources", message)
        if not _asks_for_something(resources) and (role == PSERVER or (role == TRAINER and not job.is_elastic)):
            yield _fault("TJ:3-5", f"spec.{role}.resources", "asks for nothing: no room is kept for these pods")
        own, said = priority_class_of(job, role), job.spec.priority_class_name
        if own != said:
            message = (
                f"is {own or 'empty'}, but spec.priorityClassName is {said or 'empty'}: these pods have the template's, and "
                "the job shares capacity by the lowest that its pods have; write it in spec.priorityClassName alone"
            )
            yield _fault("TJ:8-template", f"spec.{role}.template.spec.priorityClassName", message)
        if node := _node_of(spec):
            message = (
                f"is {node}: these pods go there past the scheduler, even where they have no room, and sizes count on all "
                "nodes; write a nodeSelector on kubernetes.io/hostname"
            )
            yield _fault("TJ:8-template", f"spec.{role}.template.spec.nodeName", message)
    if job.spec.framework == "paddle" and not job.spec.trainer.entrypoint and job.spec.trainer.template is None:
        yield _fault("TJ:2.2", "spec.trainer.entrypoint", "is empty: Paddle's launcher has nothing to run")


def _fault(rule: str, field: str, message: str) -> Violation:
    return Violation(rule, field, message, INVALID_SPEC)


# --- resources ---------------------------------------------------------------------------------------------------------
def _amounts(job: TrainingJob, role: str, spec: RoleSpec) -> Iterator[Violation]:
    field = f"spec.{role}.resources"
    written = with_template(spec, role)
    unreadable = [*_unreadable(written, field)]
    yield from unreadable
    if not unreadable:
        yield from _above_limits(role_resources(job, role), field)


def _unreadable(resources: Resources, field: str) -> Iterator[Violation]:
    for part, amounts in (("requests", resources.requests), ("limits", resources.limits)):
        for name, amount in amounts.items():
            yield from _one_amount(name, amount, f"{field}.{part}.{name}")


def _one_amount(name: str, amount: str | float, field: str) -> Iterator[Violation]:
    if "/" not in name and not _STANDARD.match(name):
        message = "is no resource that a container may have; write cpu, memory, ephemeral-storage, or a name with a domain, such as nvidia.com/gpu"
        yield _fault("TJ:3-18", field, message)
        return
    try:
        quantity = Quantity.parse(amount)
    except QuantityError as trouble:
        yield _fault("TJ:2.1", field, str(trouble))
        return
    if quantity.nanos < 0:
        yield _fault("TJ:2.1", field, f"is {amount}; write 0 or more")
    elif "/" in name and quantity.nanos % 10**9:
        yield _fault("TJ:3-18", field, f"is {amount}; write a whole number, such things cannot be shared")


def _above_limits(resources: Resources, field: str) -> Iterator[Violation]:
    for name, limit in resources.limits.items():
        request = resources.requests[name]
        wanted, most = Quantity.parse(request), Quantity.parse(limit)
        if is_extended(name) and wanted != most:
            message = f"is {request}, but its limit is {limit}; write the same in both, or only the limit"
            yield _fault("TJ:3-18", f"{field}.requests.{name}", message)
        elif wanted > most:
            message = f"is {request}, above its limit {limit}; lower it or raise the limit"
            yield _fault("TJ:2.1", f"{field}.requests.{name}", message)


def _asks_for_something(resources: Resources) -> bool:
    try:
        return any(Quantity.parse(amount).nanos > 0 for amount in resources.requests.values())
    except QuantityError:
        return True


# --- templates ---------------------------------------------------------------------------------------------------------
def _template(spec: RoleSpec, field: str) -> Iterator[Violation]:
    template = (spec.template or {}).get("spec") or {}
    if not isinstance(template, dict):
        yield _fault("TJ:8-template", f"{field}.template.spec", "must be an object")
        return
    for part in ("containers", "initContainers"):
        yield from _containers(template, part, f"{field}.template.spec.{part}")
    if template.get("restartPolicy") not in (None, "", "Never"):
        message = f"is {template['restartPolicy']}, but the job replaces its pods itself; remove it, and see spec.restartPolicy"
        yield _fault("TJ:8-template", f"{field}.template.spec.restartPolicy", message)
    for name, purpose in _OURS.items():
        if template.get(name):
            yield _fault("TJ:8-template", f"{field}.template.spec.{name}", f"is the operator's, {purpose}; remove it")


def _node_of(spec: RoleSpec) -> str:
    template = (spec.template or {}).get("spec")
    return str(template.get("nodeName") or "") if isinstance(template, dict) else ""


def _containers(template: Manifest, part: str, field: str) -> Iterator[Violation]:
    containers = template.get(part)
    if containers is None:
        return
    if not isinstance(containers, list) or not all(isinstance(each, dict) for each in containers):
        yield _fault("TJ:8-template", field, "must be a list of containers")
        return
    names = [each.get("name") for each in containers]
    nameless = [i for i, name in enumerate(names) if not isinstance(name, str) or not name]
    if nameless:
        message = "has no name; containers are merged by name, and the main one is called as its role"
        yield _fault("TJ:8-template", f"{field}[{nameless[0]}].name", message)
    twice = [name for name, times in Counter(map(str, names)).items() if times > 1]
    if twice and not nameless:
        yield _fault("TJ:8-template", field, f"has {', '.join(twice)} twice; give each a name of its own")
