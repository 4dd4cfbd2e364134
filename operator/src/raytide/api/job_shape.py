"""Which pods does a TrainingJob consist of, and what does each ask of its node?

Takes a job, gives its size and, per role, the outline of a pod: the part of the manifest that decides where it may run
(containers with their resources, selectors, tolerations, priority), the user's template already merged. Pod construction
starts from the same parts and the sharing pass reads the same outline, so that what is planned is what is created. Pure;
rules TJ §2.2, §8 (`template`), §3 row 3.
"""

from bisect import bisect_left
from typing import Final, NamedTuple

import msgspec
from pydantic import ValidationError

from raytide.api.meta import Manifest
from raytide.api.template_merge import merged_template
from raytide.api.training_names import ETCD, MASTER, PSERVER, TRAINER
from raytide.api.training_resources import normalised, role_resources
from raytide.api.trainingjob import Resources, RoleSpec, TrainingJob


class Size(NamedTuple):
    """How many there are to be; a master is there or not, whatever the size."""

    trainers: int
    pservers: int
    trainer_indices: tuple[int, ...] = ()
    """Which ones, ascending: a job that shrank keeps its running trainers, whatever their indices. Empty: 0, 1, 2 …"""

    @property
    def ranks(self) -> tuple[int, ...]:
        """The trainers' indices in rank order: the position of an index is its rank."""
        return self.trainer_indices or tuple(range(self.trainers))

    def rank_of(self, index: int) -> int:
        """The rank of one trainer; its index where it is none of them."""
        ranks = self.ranks
        position = bisect_left(ranks, index)
        return position if position < len(ranks) and ranks[position] == index else index


_BARE_MASTER: Final = RoleSpec()
_SCHEDULED_BY: Final = (
    *("affinity", "hostNetwork", "nodeName", "nodeSelector", "overhead", "priority", "priorityClassName", "resources"),
    *("schedulerName", "schedulingGates", "tolerations"),
)
_OF_CONTAINER: Final = ("name", "resources", "restartPolicy")
_ETCD_RESOURCES: Final = Resources(
    requests={"cpu": "100m", "memory": "128Mi"}, limits={"cpu": "500m", "memory": "512Mi"}
)
"""Of the container beside a Paddle job's master: without them a namespace with a quota refuses the pod."""


def size_for(job: TrainingJob, trainers: int) -> Size:
    """So many trainers and the parameter servers that go with them."""
    return Size(trainers, 0 if job.spec.pserver is None else job.spec.pserver.count_for(trainers))


def is_launched(job: TrainingJob) -> bool:
    """Whether Paddle's launcher, `paddle_k8s`, starts the containers; others run their entrypoint themselves."""
    return job.spec.framework == "paddle"


def role_spec(job: TrainingJob, role: str) -> RoleSpec:
    """What the spec says about a role that the job has; nothing for a master that only `fault_tolerant` asks for."""
    return job.role(role) or _BARE_MASTER


def roles_of(job: TrainingJob, size: Size) -> dict[str, int]:
    """How many pods of each role, in the order in which they start; roles without pods are left out."""
    counts = {MASTER: int(job.has_master), PSERVER: size.pservers, TRAINER: size.trainers}
    return {role: count for role, count in counts.items() if count}


def pod_outline(job: TrainingJob, role: str) -> Manifest:
    """A pod of the role as far as scheduling is concerned, as JSON, with every request filled in."""
    outline: Manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": job.metadata.namespace},
        "spec": scheduling_spec(job, role),
    }
    return templated(job, role, outline)


def priority_class_of(job: TrainingJob, role: str) -> str:
    """The PriorityClass that pods of the role are made with; the template's word counts before that of the spec.

    Whatever goes by priority has to ask here: what the spec says beside it is not what the pods have (FD:SEC-F4).
    """
    template = (role_spec(job, role).template or {}).get("spec")
    if not isinstance(template, dict) or "priorityClassName" not in template:
        return job.spec.priority_class_name
    said = template["priorityClassName"]
    return said if isinstance(said, str) else ""


def scheduling_spec(job: TrainingJob, role: str) -> Manifest:
    """The part of the pod's spec that the scheduler reads, before the user's template."""
    spec, said = job.spec, role_spec(job, role)
    containers: list[Manifest] = [{"name": role, "resources": resources_manifest(role_resources(job, role))}]
    if role == MASTER and is_launched(job):
        containers.append({"name": ETCD, "resources": resources_manifest(_ETCD_RESOURCES)})
    outline: Manifest = {"containers": containers}
    if said.node_selector:
        outline["nodeSelector"] = dict(said.node_selector)
    if said.tolerations:
        outline["tolerations"] = list(said.tolerations)
    if spec.host_network:
        outline["hostNetwork"] = True
    if spec.priority_class_name:
        outline["priorityClassName"] = spec.priority_class_name
    if spec.scheduler_name:
        outline["schedulerName"] = spec.scheduler_name
    return outline


def templated(job: TrainingJob, role: str, pod: Manifest) -> Manifest:
    """The pod with the role's template over it; the resources of every container are complete afterwards."""
    merged = merged_template(pod, role_spec(job, role).template or {})
    # What the template says about the main container counts already in role_resources, where old names are translated.
    main = resources_manifest(role_resources(job, role))
    spec: Manifest = merged["spec"]
    spec["containers"] = [
        _completed(container, main if container.get("name") == role else None) for container in spec["containers"]
    ]
    if spec.get("initContainers"):
        spec["initContainers"] = [_completed(container) for container in spec["initContainers"]]
    return merged


def scheduling_part(template: Manifest) -> Manifest:
    """The part of a role's template that decides where its pods may run, and nothing else of it."""
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
    """How large is all that decides where a role's pods may run, as JSON?"""
    parts = [role.resources.requests, role.resources.limits, role.node_selector, role.tolerations]
    return len(msgspec.json.encode([*parts, scheduling_part(role.template or {})]))


def resources_manifest(resources: Resources) -> Manifest:
    """As a container writes them; parts without content are left out."""
    parts = {"limits": dict(resources.limits), "requests": dict(resources.requests)}
    return {part: amounts for part, amounts in parts.items() if amounts}


def _completed(container: Manifest, complete: Manifest | None = None) -> Manifest:
    """With `complete` in place of its requests and limits, or with its own made complete."""
    written = container.get("resources") or {}
    if complete is None:
        try:
            complete = resources_manifest(normalised(Resources.model_validate(written)))
        except ValidationError:  # the API server will say so better
            return container
    rest = {key: value for key, value in container.items() if key != "resources"}
    more = {key: value for key, value in written.items() if key not in {"limits", "requests"}}
    return {**rest, "resources": {**more, **complete}} if more or complete else rest
