"""Validation of a TrainingJob.

`violations` takes the job and returns every violation, each with its rule, the field and what to write instead;
`warnings` returns settings that are unusual but allowed; `unsupported` returns fields that have no effect. It reads
nothing but the spec and its metadata, and never raises. The CRD has the same rules as far as an API server can evaluate
them; rules TJ §2.1, §3, §8. Called by the plan.
"""

import re
from collections.abc import Iterator
from typing import Final

from raytide.api.config import DEFAULT_GPUS
from raytide.api.limits import (
    MAX_AMOUNTS,
    MAX_CONSTRAINT_BYTES,
    MAX_CONSTRAINTS,
    MAX_CONTAINERS,
    MAX_RESOURCES,
    MAX_SCHEDULING_BYTES,
    MAX_VALUES,
)
from raytide.api.trainingjob import LONGEST_PENDING_S, InstancesSpec, TrainingJob
from raytide.api.trainingjob_constants import INVALID_SPEC, PSERVER, ROLES, TRAINER
from raytide.api.trainingjob_pods import is_too_large, scheduling_bytes
from raytide.api.violations import Unsupported, Violation, first_violations
from raytide.trainingjob.field_aliases import spelling_violations
from raytide.trainingjob.unsupported import unsupported
from raytide.trainingjob.validation_pods import pod_violations, pod_warnings

__all__ = ["Unsupported", "Violation", "unsupported", "violations", "warnings"]

MAX_HOST_NAME: Final = 63
MAX_PORT: Final = 65535
MAX_NAMED: Final = 10
"""Maximum number of values named in one message."""

_DNS_1035: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?\Z")


def violations(job: TrainingJob) -> tuple[Violation, ...]:
    """The violations of the job, in the order of the spec; empty means valid."""
    checks = (
        _name_violations,
        spelling_violations,
        _count_violations,
        _size_violations,
        _number_violations,
        _template_violations,
        pod_violations,
    )
    return first_violations(violation for check in checks for violation in check(job))


def warnings(job: TrainingJob, gpus: frozenset[str] = DEFAULT_GPUS) -> tuple[Violation, ...]:
    """Settings that are allowed but probably not intended; `gpus` are the resources treated as GPUs."""
    return (*job.clamped, *_count_warnings(job), *_size_warnings(job), *pod_warnings(job, gpus))


def _violation(rule: str, field: str, message: str) -> Violation:
    return Violation(rule, field, message, INVALID_SPEC)


# --- the name --------------------------------------------------------------------------------------------------------
def _name_violations(job: TrainingJob) -> Iterator[Violation]:
    name = job.metadata.name
    if not _DNS_1035.match(name):
        message = (
            f"{name!r} is not a DNS-1035 label, which the name of the job's Service must be; use lower-case letters, digits "
            "and '-', start with a letter and end with a letter or digit"
        )
        yield _violation("TJ:8-name", "metadata.name", message)
    longest = max((_longest_suffix(role, spec) for role, spec in _instances(job)), key=len)
    if len(name) + len(longest) > MAX_HOST_NAME:
        message = (
            f"is {len(name)} characters long: with the suffix {longest}, the host name of a pod would be longer than "
            f"{MAX_HOST_NAME} characters; use at most {MAX_HOST_NAME - len(longest)} characters"
        )
        yield _violation("TJ:8-name", "metadata.name", message)


def _longest_suffix(role: str, spec: InstancesSpec) -> str:
    return f"-{role}-{max(spec.min_instance, spec.ceiling, 0)}"


def _instances(job: TrainingJob) -> Iterator[tuple[str, InstancesSpec]]:
    """The roles whose number has bounds."""
    yield TRAINER, job.spec.trainer
    if job.spec.pserver is not None:
        yield PSERVER, job.spec.pserver


# --- counts ----------------------------------------------------------------------------------------------------------
def _count_violations(job: TrainingJob) -> Iterator[Violation]:
    for role, spec in _instances(job):
        yield from _bound_violations(spec, f"spec.{role}", minimum=1 if role == TRAINER else 0)
    replicas, pserver = job.spec.trainer.replicas, job.spec.pserver
    if replicas is not None and replicas < 0:
        yield _violation("TJ:3-21", "spec.trainer.replicas", f"is {replicas}; write 0 or more")
    if pserver is not None and pserver.trainers_per_pserver < 1:
        message = f"is {pserver.trainers_per_pserver}; write 1 or more"
        yield _violation("TJ:3-4", "spec.pserver.scaling.trainersPerPserver", message)
    if job.is_elastic and job.spec.fault_tolerant is False:
        message = (
            f"is false, so max-instance of trainer ({job.spec.trainer.ceiling}) must equal min-instance "
            f"({job.spec.trainer.min_instance}); set it to true, or make the two equal"
        )
        yield _violation("TJ:3-2", "spec.fault_tolerant", message)


def _bound_violations(spec: InstancesSpec, field: str, *, minimum: int) -> Iterator[Violation]:
    low, high = spec.min_instance, spec.ceiling
    if "min_instance" not in spec.model_fields_set:
        yield _violation("TJ:2.1", f"{field}.min-instance", "is missing; write the minimum number of instances")
    elif low < minimum:
        yield _violation("TJ:2.1", f"{field}.min-instance", f"is {low}; write {minimum} or more")
    if high < 0:
        yield _violation("TJ:2.1", f"{field}.max-instance", f"is {high}; write {minimum} or more")
    elif low > high:
        message = f"is {low}, above max-instance {high}; lower it or raise max-instance"
        yield _violation("TJ:2.1", f"{field}.min-instance", message)


def _count_warnings(job: TrainingJob) -> Iterator[Violation]:
    pending_s = job.spec.pending_timeout_seconds
    if pending_s > LONGEST_PENDING_S:
        message = f"is {pending_s}, but {LONGEST_PENDING_S} (one week) is used: no job may hold capacity for longer without starting"
        yield _violation("TJ:8", "spec.pendingTimeoutSeconds", message)
    pserver = job.spec.pserver
    if pserver is not None and not pserver.is_by_ratio and pserver.ceiling > pserver.min_instance:
        message = (
            f"is {pserver.ceiling}, but the number of parameter servers stays at min-instance ({pserver.min_instance}); "
            "set spec.pserver.scaling to Ratio to scale them with the trainers"
        )
        yield _violation("TJ:3-4", "spec.pserver.max-instance", message)
    here, there = job.spec.passes, job.spec.trainer.passes
    if here and there and here != there:
        yield _violation(
            "TJ:3-20", "spec.trainer.passes", f"is {there}, but spec.passes ({here}) is used; remove one of them"
        )


# --- sizes and times --------------------------------------------------------------------------------------------------
def _size_violations(job: TrainingJob) -> Iterator[Violation]:
    scaling, low, high = job.spec.scaling, job.spec.trainer.min_instance, job.spec.trainer.ceiling
    if scaling.step < 1:
        yield _violation("TJ:8-scaling", "spec.scaling.step", f"is {scaling.step}; write 1 or more")
    outside = [size for size in scaling.allowed_sizes if not low <= size <= high]
    if outside and low <= high:
        named = ", ".join(map(str, outside[:MAX_NAMED])) + (" …" if len(outside) > MAX_NAMED else "")
        message = f"contains {named}, not between min-instance {low} and max-instance {high} of trainer; remove it"
        yield _violation("TJ:8-scaling", "spec.scaling.allowedSizes", message)


def _size_warnings(job: TrainingJob) -> Iterator[Violation]:
    scaling, low, high = job.spec.scaling, job.spec.trainer.min_instance, job.spec.trainer.ceiling
    if job.is_elastic and scaling.step > high - low:
        message = f"is {scaling.step}, more than the range from min-instance {low} to max-instance {high}: {low} is the only size"
        yield _violation("TJ:8-scaling", "spec.scaling.step", message)
    elif not scaling.allowed_sizes and scaling.step > 1 and (high - low) % scaling.step:
        largest = low + (high - low) // scaling.step * scaling.step
        message = f"is {scaling.step}: sizes are min-instance {low} plus multiples of {scaling.step}, so the largest is {largest}, not {high}"
        yield _violation("TJ:8-scaling", "spec.scaling.step", message)
    if scaling.allowed_sizes and low not in scaling.allowed_sizes:
        message = f"does not contain min-instance ({low}), which is always allowed"
        yield _violation("TJ:8-scaling", "spec.scaling.allowedSizes", message)


def _number_violations(job: TrainingJob) -> Iterator[Violation]:
    """Numbers below their minimum, a percentage above 100, and ports above the largest port number."""
    spec, scaling = job.spec, job.spec.scaling
    minimums = (
        ("spec.scaling.growCooldownSeconds", scaling.grow_cooldown_seconds, 0),
        ("spec.scaling.shrinkCooldownSeconds", scaling.shrink_cooldown_seconds, 0),
        ("spec.scaling.minRuntimeSeconds", scaling.min_runtime_seconds, 0),
        ("spec.pendingTimeoutSeconds", spec.pending_timeout_seconds, 1),
        ("spec.backoffLimit", spec.backoff_limit, 0),
        ("spec.maxFailedPercent", spec.max_failed_percent, 0),
        ("spec.activeDeadlineSeconds", spec.active_deadline_seconds, 1),
        ("spec.ttlSecondsAfterFinished", spec.ttl_seconds_after_finished, 0),
        ("spec.annotations.walltime", spec.annotations.walltime, 0),
        ("spec.passes", spec.passes, 0),
        ("spec.trainer.passes", spec.trainer.passes, 0),
        ("spec.port", spec.port, 1),
        ("spec.ports_num", spec.ports_num, 1),
        ("spec.ports_num_for_sparse", spec.ports_num_for_sparse, 0),
    )
    for field, number, minimum in minimums:
        if number is not None and number < minimum:
            yield _violation("TJ:8", field, f"is {number}; write {minimum} or more")
    if spec.max_failed_percent is not None and spec.max_failed_percent > 100:
        yield _violation("TJ:8", "spec.maxFailedPercent", f"is {spec.max_failed_percent}; write 100 or less")
    last_port = spec.port + spec.ports_num + spec.ports_num_for_sparse - 1
    if last_port > MAX_PORT:
        message = f"is {spec.port}, so the last port would be {last_port}, above {MAX_PORT}; lower it or ports_num"
        yield _violation("TJ:2.1", "spec.port", message)


_TOO_LARGE: Final = (
    f"has more than {MAX_RESOURCES} resources, {MAX_CONTAINERS} containers or {MAX_AMOUNTS} amounts, or its node selector, required "
    f"node affinity and tolerations have more than {MAX_CONSTRAINTS} entries, {MAX_VALUES} values or {MAX_CONSTRAINT_BYTES} "
    "characters; shorten them"
)


def _template_violations(job: TrainingJob) -> Iterator[Violation]:
    """Limit the size of the fields that affect scheduling, because they are kept in memory for sharing."""
    for role in ROLES:
        spec = job.role(role)
        size = 0 if spec is None else scheduling_bytes(spec)
        if size > MAX_SCHEDULING_BYTES:
            message = (
                f"has {size} bytes of scheduling fields (resources, selectors, affinity, tolerations); "
                f"shorten them to at most {MAX_SCHEDULING_BYTES} bytes"
            )
            yield _violation("FD:SEC-F6", f"spec.{role}", message)
        elif spec is not None and is_too_large(job, role):
            yield _violation("FD:SEC3-2", f"spec.{role}", _TOO_LARGE)
