"""What does Ray's own scheduler decide? Asks the one of the installed `ray` package, without a cluster.

Turns our question into Ray's request and Ray's reply into our decision, with leftovers as a multiset; an exception of
Ray's is an answer too. The maps of a live node are given in order of their keys: Ray itself adds a node's score up in
the order of a protobuf map, which changes from process to process. Used by compare.py and bench/schedule.py.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from ray.autoscaler.v2.instance_manager.config import NodeTypeConfig
from ray.autoscaler.v2.scheduler import ResourceDemandScheduler, SchedulingRequest
from ray.autoscaler.v2.schema import AutoscalerInstance
from ray.core.generated import autoscaler_pb2, common_pb2, instance_manager_pb2

from raytide.autoscaler import model

logging.getLogger("ray.autoscaler.v2.scheduler").setLevel(logging.ERROR)

OPERATORS = {
    (True, True): common_pb2.LABEL_OPERATOR_IN,
    (False, True): common_pb2.LABEL_OPERATOR_NOT_IN,
    (True, False): common_pb2.LABEL_OPERATOR_UNSPECIFIED,
    (False, False): common_pb2.LABEL_OPERATOR_UNSPECIFIED,
}


@dataclass(frozen=True)
class Answer:
    """A decision in a form in which two schedulers can be compared."""

    launches: Mapping[str, int]
    terminations: tuple[tuple[str, str], ...]
    unplaced: Mapping[Any, int]
    unplaced_gangs: tuple[str, ...]
    is_constraint_unmet: bool
    cluster_resources: Mapping[str, int]
    error: str = ""


def floats(amounts: model.Amounts) -> dict[str, float]:
    """Ray's numbers."""
    return {name: amount / model.RESOURCE_UNIT_SCALING for name, amount in amounts}


def request_of(request: model.Request) -> Any:
    """As the GCS would send it."""
    one = autoscaler_pb2.ResourceRequest()
    for name, amount in floats(request.amounts).items():
        one.resources_bundle[name] = amount
    for selector in request.selectors:
        ours = one.label_selectors.add()
        for constraint in selector:
            ours.label_constraints.add(
                label_key=constraint.key,
                operator=OPERATORS[constraint.is_in, constraint.is_known],
                label_values=constraint.values,
            )
    if request.affinity is not None:
        affinity = one.placement_constraints.add().affinity
        affinity.label_name, affinity.label_value = request.affinity
    if request.anti_affinity is not None:
        anti_affinity = one.placement_constraints.add().anti_affinity
        anti_affinity.label_name, anti_affinity.label_value = request.anti_affinity
    return one


def demands_of(demands: tuple[model.Demand, ...]) -> list[Any]:
    """Requests by count."""
    return [
        autoscaler_pb2.ResourceRequestByCount(request=request_of(demand.request), count=demand.count)
        for demand in demands
    ]


def gang_of(gang: model.Gang) -> Any:
    """Every bundle twice: in the legacy list without selectors, and in the one that counts."""
    one = autoscaler_pb2.GangResourceRequest(details=gang.details)
    bundles = one.bundle_selectors.add()
    for bundle in gang.bundles:
        bundles.resource_requests.append(request_of(bundle))
        legacy = one.requests.add()
        legacy.CopyFrom(request_of(bundle))
        legacy.ClearField("label_selectors")
    return one


def instance_of(instance: model.Instance) -> Any:
    """A row of Ray's instance manager, with the node's state if Ray runs on it."""
    row = instance_manager_pb2.Instance(
        instance_id=instance.instance_id,
        instance_type=instance.node_type,
        status=instance_manager_pb2.Instance.InstanceStatus.Value(instance.status.value),
        node_kind=instance_manager_pb2.NodeKind.HEAD if instance.is_head else instance_manager_pb2.NodeKind.WORKER,
        cloud_instance_id=instance.pod,
        node_id=instance.node_id,
    )
    node = None
    if instance.status is model.Status.RAY_RUNNING:
        node = SimpleNamespace(
            total_resources=floats(instance.total),
            available_resources=floats(instance.available),
            labels=dict(instance.labels),
            dynamic_labels=dict(instance.dynamic_labels),
            idle_duration_ms=instance.idle_ms,
        )
    return AutoscalerInstance(im_instance=row, ray_node=node, cloud_instance_id=instance.pod or None)


def build_request(question: model.SchedulingRequest) -> Any:
    """Ray's form of the question."""
    constraints = []
    if question.constraint is not None:
        asked = demands_of(question.constraint)
        constraints.append(autoscaler_pb2.ClusterResourceConstraint(resource_requests=asked))
    return SchedulingRequest(
        disable_launch_config_check=True,
        node_type_configs={
            one.name: NodeTypeConfig(
                name=one.name,
                min_worker_nodes=one.min_nodes,
                max_worker_nodes=one.max_nodes,
                idle_timeout_s=one.idle_timeout_s,
                priority=one.priority,
                resources=floats(one.resources),
                labels=dict(one.labels),
            )
            for one in question.types
        },
        max_num_nodes=question.max_nodes or None,
        idle_timeout_s=question.idle_timeout_s,
        resource_requests=demands_of(question.tasks),
        gang_resource_requests=[gang_of(gang) for gang in question.gangs],
        cluster_resource_constraints=constraints,
        current_instances=[instance_of(instance) for instance in question.instances],
        cloud_resource_availabilities=dict(question.availability),
        recoverable_resource_availabilities=dict(question.recoverable),
    )


def answer_of_ray(question: model.SchedulingRequest) -> Answer:
    """What Ray decides."""
    request = build_request(question)
    try:
        reply = ResourceDemandScheduler().schedule(request)
    except Exception as error:  # noqa: BLE001 - whatever Ray fails with is its answer
        return failed(type(error).__name__)
    unplaced: dict[Any, int] = {}
    for request in reply.infeasible_resource_requests:
        key = request.SerializeToString(deterministic=True)
        unplaced[key] = unplaced.get(key, 0) + 1
    cause = instance_manager_pb2.TerminationRequest.Cause
    return Answer(
        launches={one.instance_type: one.count for one in reply.to_launch},
        terminations=tuple(sorted((one.instance_id, cause.Name(one.cause)) for one in reply.to_terminate)),
        unplaced=unplaced,
        unplaced_gangs=tuple(sorted(gang.details for gang in reply.infeasible_gang_resource_requests)),
        is_constraint_unmet=bool(reply.infeasible_cluster_resource_constraints),
        cluster_resources={
            name: round(n * model.RESOURCE_UNIT_SCALING) for name, n in sorted(reply.cluster_resources.items()) if n
        },
    )


def failed(error: str) -> Answer:
    """An exception instead of a decision."""
    return Answer({}, (), {}, (), is_constraint_unmet=False, cluster_resources={}, error=error)


def answer_of(decision: model.SchedulingReply) -> Answer:
    """Ours, in the same form."""
    unplaced: dict[Any, int] = {}
    for demand in decision.unplaced:
        key = request_of(demand.request).SerializeToString(deterministic=True)
        unplaced[key] = unplaced.get(key, 0) + demand.count
    return Answer(
        launches=dict(decision.launches),
        terminations=tuple(sorted((one.instance_id, one.cause.value) for one in decision.terminations)),
        unplaced=unplaced,
        unplaced_gangs=tuple(sorted(gang.details for gang in decision.unplaced_gangs)),
        is_constraint_unmet=bool(decision.unmet),
        cluster_resources={name: amount for name, amount in decision.cluster_resources if amount},
    )
