"""Validation of the resources and pod templates of a TrainingJob.

Takes the job, and returns the violations that can be found before a pod is created: invalid quantities, requests above
limits, an elastic job whose trainers request nothing, templates that override fields the job needs. Checks that only
the API server can make are left to it, and its messages are reported. Pure. Called by validation.py only; rules TJ §3
rows 5 and 18, §8.
"""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

from raytide.api.meta import Manifest
from raytide.api.quantity import Quantity, QuantityError
from raytide.api.training_resources import is_amount, is_extended, role_resources, with_template
from raytide.api.trainingjob import Resources, RoleSpec, TrainingJob
from raytide.api.trainingjob_constants import INVALID_SPEC, PSERVER, ROLES, TRAINER
from raytide.api.trainingjob_pods import priority_class_of
from raytide.api.violations import Violation

_STANDARD: Final = re.compile(r"(cpu|memory|ephemeral-storage|hugepages-.+)\Z")
"""Resources without a domain that a container may request."""
_LOOKS_LIKE_A_GPU: Final = re.compile(r"gpu|/mig-", re.IGNORECASE)
_OURS: Final = {
    "hostname": "because other pods reach the pod by it",
    "subdomain": "because other pods reach the pod by it",
}
"""Fields of a pod that a template may not set -> the reason."""


def pod_violations(job: TrainingJob) -> Iterator[Violation]:
    """The violations of all roles, in the order of the spec."""
    for role in ROLES:
        spec = job.role(role)
        if spec is None:
            continue
        violations = [*_template_resources(spec, role), *_amounts(job, role, spec)]
        yield from violations
        if role == TRAINER and job.is_elastic and not violations and not _asks_for_something(role_resources(job, role)):
            message = (
                "has no requests, so the number of trainers that fit cannot be computed; write requests, or make "
                "max-instance equal to min-instance"
            )
            yield _violation("TJ:3-5", f"spec.{role}.resources", message)
        yield from _template(spec, f"spec.{role}")


def pod_warnings(job: TrainingJob, gpus: frozenset[str]) -> Iterator[Violation]:
    """Unusual settings of the pods of any role."""
    for role in ROLES:
        spec = job.role(role)
        if spec is None:
            continue
        resources = role_resources(job, role)
        for name in sorted({*resources.requests, *resources.limits} - gpus):
            if is_extended(name) and _LOOKS_LIKE_A_GPU.search(name):
                known = ", ".join(sorted(gpus)) or "none"
                message = (
                    f"has {name}, which is not a GPU resource of the operator ({known}): the job is not admitted as a gang; "
                    "add it to the operator's --gpu-resources, or set spec.startPolicy to Gang"
                )
                yield _violation("TJ:3-18", f"spec.{role}.resources", message)
        if not _asks_for_something(resources) and (role == PSERVER or (role == TRAINER and not job.is_elastic)):
            yield _violation(
                "TJ:3-5", f"spec.{role}.resources", "has no requests: no capacity is reserved for these pods"
            )
        own, spec_class = priority_class_of(job, role), job.spec.priority_class_name
        if own != spec_class:
            message = (
                f"is {own or 'empty'}, but spec.priorityClassName is {spec_class or 'empty'}: these pods have the template's, and "
                "fair sharing uses the lowest priority of the job's pods; set only spec.priorityClassName"
            )
            yield _violation("TJ:8-template", f"spec.{role}.template.spec.priorityClassName", message)
        if node := _node_of(spec):
            message = (
                f"is {node}: these pods bypass the scheduler, even if they do not fit there, and sizes are computed for all "
                "nodes; use a nodeSelector on kubernetes.io/hostname instead"
            )
            yield _violation("TJ:8-template", f"spec.{role}.template.spec.nodeName", message)
    if job.spec.framework == "paddle" and not job.spec.trainer.entrypoint and job.spec.trainer.template is None:
        yield _violation("TJ:2.2", "spec.trainer.entrypoint", "is empty: Paddle's launcher has nothing to run")


def _violation(rule: str, field: str, message: str) -> Violation:
    return Violation(rule, field, message, INVALID_SPEC)


# --- resources --------------------------------------------------------------------------------------------------------
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
        message = "is not a resource of containers; use cpu, memory, ephemeral-storage, or a name with a domain, such as nvidia.com/gpu"
        yield _violation("TJ:3-18", field, message)
        return
    try:
        quantity = Quantity.parse(amount)
    except QuantityError as error:
        yield _violation("TJ:2.1", field, str(error))
        return
    if quantity.nanos < 0:
        yield _violation("TJ:2.1", field, f"is {amount}; write 0 or more")
    elif "/" in name and quantity.nanos % 10**9:
        yield _violation("TJ:3-18", field, f"is {amount}; write a whole number, extended resources cannot be divided")


def _above_limits(resources: Resources, field: str) -> Iterator[Violation]:
    """Requests above their limits, and requests of extended resources that differ from their limits."""
    for name, limit in resources.limits.items():
        request = resources.requests[name]
        request_amount, limit_amount = Quantity.parse(request), Quantity.parse(limit)
        if is_extended(name) and request_amount != limit_amount:
            message = f"is {request}, but its limit is {limit}; write the same in both, or only the limit"
            yield _violation("TJ:3-18", f"{field}.requests.{name}", message)
        elif request_amount > limit_amount:
            message = f"is {request}, above its limit {limit}; lower it or raise the limit"
            yield _violation("TJ:2.1", f"{field}.requests.{name}", message)


def _asks_for_something(resources: Resources) -> bool:
    try:
        return any(Quantity.parse(amount).nanos > 0 for amount in resources.requests.values())
    except QuantityError:
        return True


def _template_resources(spec: RoleSpec, role: str) -> Iterator[Violation]:
    """Amounts of the main container in the template that have the wrong type; the schema does not look into templates."""
    template = (spec.template or {}).get("spec")
    containers = template.get("containers") if isinstance(template, dict) else None
    for i, container in enumerate(containers if isinstance(containers, list) else ()):
        if not isinstance(container, dict) or container.get("name") != role:
            continue
        field = f"spec.{role}.template.spec.containers[{i}].resources"
        resources = container.get("resources")
        if resources is not None and not isinstance(resources, dict):
            yield _violation("TJ:8-template", field, "must be an object with requests and limits")
            continue
        for part in ("requests", "limits"):
            yield from _wrong_types((resources or {}).get(part), f"{field}.{part}")


def _wrong_types(amounts: object, field: str) -> Iterator[Violation]:
    if amounts is None:
        return
    if not isinstance(amounts, dict):
        yield _violation("TJ:8-template", field, "must be an object of resource names and quantities")
        return
    for name, amount in amounts.items():
        if amount is not None and not is_amount(amount):
            yield _violation("TJ:2.1", f"{field}.{name}", str(QuantityError(amount)))


# --- templates --------------------------------------------------------------------------------------------------------
def _template(spec: RoleSpec, field: str) -> Iterator[Violation]:
    template = (spec.template or {}).get("spec") or {}
    if not isinstance(template, dict):
        yield _violation("TJ:8-template", f"{field}.template.spec", "must be an object")
        return
    for part in ("containers", "initContainers"):
        yield from _containers(template, part, f"{field}.template.spec.{part}")
    if template.get("restartPolicy") not in (None, "", "Never"):
        message = f"is {template['restartPolicy']}, but the operator replaces failed pods; remove it and use spec.restartPolicy"
        yield _violation("TJ:8-template", f"{field}.template.spec.restartPolicy", message)
    for name, purpose in _OURS.items():
        if template.get(name):
            yield _violation(
                "TJ:8-template", f"{field}.template.spec.{name}", f"is set by the operator, {purpose}; remove it"
            )


def _node_of(spec: RoleSpec) -> str:
    template = (spec.template or {}).get("spec")
    return str(template.get("nodeName") or "") if isinstance(template, dict) else ""


def _containers(template: Manifest, part: str, field: str) -> Iterator[Violation]:
    containers = template.get(part)
    if containers is None:
        return
    if not isinstance(containers, list) or not all(isinstance(each, dict) for each in containers):
        yield _violation("TJ:8-template", field, "must be a list of containers")
        return
    names = [each.get("name") for each in containers]
    nameless = [i for i, name in enumerate(names) if not isinstance(name, str) or not name]
    if nameless:
        message = "is missing; containers are merged by name, and the main container has the name of its role"
        yield _violation("TJ:8-template", f"{field}[{nameless[0]}].name", message)
    twice = [name for name, times in Counter(map(str, names)).items() if times > 1]
    if twice and not nameless:
        yield _violation(
            "TJ:8-template", field, f"has several containers named {', '.join(twice)}; make the names unique"
        )
