"""Pod counts of a TrainingJob and the scheduling part of its pods.

Computes a job's size and, per role, a pod outline: the fields that decide where the pod may run (containers with their
resources, selectors, tolerations, priority), with the user's template merged in. Pod construction starts from the same
parts and fair sharing reads the same outline, so planned and created pods agree. Pure; rules TJ §2.2, §8 (`template`),
§3 row 3.
"""

from bisect import bisect_left
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec
from pydantic import ValidationError

from raytide.api.capacity import NEVER, Priority, priority_in
from raytide.api.meta import Manifest
from raytide.api.pod_requirements import pod_shape
from raytide.api.pod_template_merge import merged_template
from raytide.api.quantity import QuantityError
from raytide.api.training_resources import normalised, role_resources
from raytide.api.trainingjob import Resources, RoleSpec, TrainingJob
from raytide.api.trainingjob_constants import ETCD, ETCD_PORT, MASTER, MASTER_PORT


class Size(NamedTuple):
    """Target numbers of trainers and parameter servers; a master does not depend on the size."""

    trainers: int
    pservers: int
    trainer_indices: tuple[int, ...] = ()
    """Trainer indices, ascending: a scale-down keeps running trainers, whatever their indices. Empty: from 0 on."""

    @property
    def ranks(self) -> tuple[int, ...]:
        """The trainers' indices in rank order: the position of an index is its rank."""
        return self.trainer_indices or tuple(range(self.trainers))

    def rank_of(self, index: int) -> int:
        """The rank of one trainer; its index where it is not among them."""
        ranks = self.ranks
        position = bisect_left(ranks, index)
        return position if position < len(ranks) and ranks[position] == index else index


_BARE_MASTER: Final = RoleSpec()
_SCHEDULED_BY: Final = (
    *("affinity", "hostNetwork", "nodeName", "nodeSelector", "overhead", "preemptionPolicy", "priority"),
    *("priorityClassName", "resources", "schedulerName", "schedulingGates", "tolerations"),
)
_OF_CONTAINER: Final = ("name", "ports", "resources", "restartPolicy")
_ETCD_RESOURCES: Final = Resources(
    requests={"cpu": "100m", "memory": "128Mi"}, limits={"cpu": "500m", "memory": "512Mi"}
)
"""Of the etcd container in a Paddle job's master pod: in a namespace with a quota, the pod is rejected without them."""


def uses_launcher(job: TrainingJob) -> bool:
    """Whether Paddle's launcher, `paddle_k8s`, starts the containers; with other frameworks they run the entrypoint."""
    return job.spec.framework == "paddle"


def role_spec(job: TrainingJob, role: str) -> RoleSpec:
    """The spec of a role that the job has; an empty one for a master that exists only because of `fault_tolerant`."""
    return job.role(role) or _BARE_MASTER


def pod_outline(job: TrainingJob, role: str) -> Manifest:
    """The scheduling part of a pod of the role, as a manifest with all requests filled in."""
    outline: Manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": job.metadata.namespace},
        "spec": scheduling_spec(job, role),
    }
    return templated(job, role, outline)


def priority_class_of(job: TrainingJob, role: str) -> str:
    """The PriorityClass of the role's pods: the template's, else that of the spec.

    Every decision by priority must use this function: the pods may not have the spec's class (FD:SEC-F4).
    """
    template = (role_spec(job, role).template or {}).get("spec")
    if not isinstance(template, dict) or "priorityClassName" not in template:
        return job.spec.priority_class_name
    class_name = template["priorityClassName"]
    return class_name if isinstance(class_name, str) else ""


def has_scheduling_gates(job: TrainingJob, role: str) -> bool:
    """Whether the role's template gives its pods scheduling gates."""
    template = (role_spec(job, role).template or {}).get("spec")
    return isinstance(template, dict) and bool(template.get("schedulingGates"))


def priority_of(job: TrainingJob, role: str, priorities: Mapping[str, Priority]) -> Priority:
    """The priority of the role's pods; they may preempt unless their class or their template says never."""
    value, may_preempt = priority_in(priorities, priority_class_of(job, role))
    template = (role_spec(job, role).template or {}).get("spec")
    is_never = isinstance(template, dict) and template.get("preemptionPolicy") == NEVER
    return Priority(value, may_preempt and not is_never)


def scheduling_spec(job: TrainingJob, role: str) -> Manifest:
    """The fields of the pod spec that the scheduler reads, before the user's template is merged."""
    spec, own = job.spec, role_spec(job, role)
    containers: list[Manifest] = [
        {
            "name": role,
            "resources": resources_manifest(role_resources(job, role)),
            "ports": container_ports(job, role),
        }
    ]
    if role == MASTER and uses_launcher(job):
        containers.append({"name": ETCD, "resources": resources_manifest(_ETCD_RESOURCES)})
    outline: Manifest = {"containers": containers}
    if own.node_selector:
        outline["nodeSelector"] = dict(own.node_selector)
    if own.tolerations:
        outline["tolerations"] = list(own.tolerations)
    if spec.host_network:
        outline["hostNetwork"] = True
    if spec.priority_class_name:
        outline["priorityClassName"] = spec.priority_class_name
    if spec.scheduler_name:
        outline["schedulerName"] = spec.scheduler_name
    return outline


def container_ports(job: TrainingJob, role: str) -> list[Manifest]:
    """Ports of its main container: the master's on a master, and etcd's if Paddle's launcher is used; else the job's (TJ §2.2)."""
    spec = job.spec
    if role == MASTER:
        etcd = [{"name": "etcd-port", "containerPort": ETCD_PORT}] if uses_launcher(job) else []
        return [{"name": "master-port", "containerPort": MASTER_PORT}, *etcd]
    numbers = range(spec.port, spec.port + spec.ports_num + spec.ports_num_for_sparse)
    return [{"name": f"jobport-{number}", "containerPort": number} for number in numbers]


def templated(job: TrainingJob, role: str, pod: Manifest) -> Manifest:
    """The pod with the role's template merged over it; every container's resources are complete afterwards."""
    merged = merged_template(pod, role_spec(job, role).template or {})
    # role_resources already contains the template's resources for the main container, with old names translated.
    main = resources_manifest(role_resources(job, role))
    spec: Manifest = merged["spec"]
    spec["containers"] = [
        _completed(container, main if container.get("name") == role else None) for container in spec["containers"]
    ]
    if spec.get("initContainers"):
        spec["initContainers"] = [_completed(container) for container in spec["initContainers"]]
    return merged


def scheduling_part(template: Manifest) -> Manifest:
    """Only the fields of a role's template that decide where its pods may run."""
    spec = template.get("spec")
    if not isinstance(spec, dict):
        return {}
    part: Manifest = {key: spec[key] for key in _SCHEDULED_BY if key in spec}
    for key in ("containers", "initContainers"):
        if isinstance(spec.get(key), list):
            part[key] = [
                {name: each[name] for name in _OF_CONTAINER if name in each}
                for each in spec[key]
                if isinstance(each, dict)
            ]
    return {"spec": part}


def scheduling_bytes(role: RoleSpec) -> int:
    """JSON size, in bytes, of everything that decides where a role's pods may run."""
    parts = [role.resources.requests, role.resources.limits, role.node_selector, role.tolerations]
    return len(msgspec.json.encode([*parts, scheduling_part(role.template or {})]))


def is_too_large(job: TrainingJob, role: str) -> bool:
    """Whether a pod of the role has more resources or constraints than are kept of one (api/limits.py)."""
    try:
        return pod_shape(pod_outline(job, role)["spec"]).is_too_large
    except (msgspec.MsgspecError, QuantityError):
        return False  # other violations report what it is


def resources_manifest(resources: Resources) -> Manifest:
    """`resources` of a container; empty parts are left out."""
    parts = {"limits": dict(resources.limits), "requests": dict(resources.requests)}
    return {part: amounts for part, amounts in parts.items() if amounts}


def _completed(container: Manifest, complete: Manifest | None = None) -> Manifest:
    """The container with `complete` as its requests and limits; without it, with defaults added to its own."""
    written = container.get("resources") or {}
    if not isinstance(written, Mapping):  # reported by validation for the main container, by the API server for others
        return container
    if complete is None:
        try:
            complete = resources_manifest(normalised(Resources.model_validate(written)))
        except ValidationError:  # left to the API server, whose error is better
            return container
    rest = {key: value for key, value in container.items() if key != "resources"}
    more = {key: value for key, value in written.items() if key not in {"limits", "requests"}}
    return {**rest, "resources": {**more, **complete}} if more or complete else rest
