"""Short builders of scheduling requests: `node("g", cpu=4)`, `tasks(3, CPU=1)`, `ask(...)`."""

from raytide.autoscaler.model import (
    HEAD_TYPE,
    Demand,
    Gang,
    Instance,
    LabelConstraint,
    NodeType,
    Request,
    SchedulingReply,
    SchedulingRequest,
    Status,
    amounts_of,
    labels_of,
)
from raytide.autoscaler.scheduling.schedule import schedule

HEAD = NodeType(HEAD_TYPE, 0, 1, amounts_of({"CPU": 0}))


def group(
    name: str, *, most: int = 10, least: int = 0, hosts: int = 1, labels=None, idle=None, priority=0, **resources
):
    """A worker group; counts are nodes."""
    return NodeType(name, least, most, amounts_of(resources), labels_of(labels or {}), idle, priority, hosts)


def running(name: str, group: str, *, idle_s: float = 0, free=None, labels=None, groups=None, replica="", **total):
    """A node on which Ray runs; by default all resources are free."""
    return Instance(
        name,
        group,
        Status.RAY_RUNNING,
        pod=name,
        node_id=f"node-of-{name}",
        total=amounts_of(total),
        available=amounts_of(total if free is None else free),
        labels=labels_of(labels or {}),
        dynamic_labels=labels_of(groups or {}),
        idle_ms=int(idle_s * 1000),
        replica=replica,
    )


def head(**total):
    """The head, free."""
    one = {"CPU": 0, **total}
    return Instance(
        "head",
        HEAD_TYPE,
        Status.RAY_RUNNING,
        is_head=True,
        pod="head",
        node_id="node-of-head",
        total=amounts_of(one),
        available=amounts_of(one),
    )


def pending(name: str, group: str, status: Status = Status.ALLOCATED, replica=""):
    """A node on its way, or on its way out."""
    return Instance(name, group, status, pod=name, replica=replica)


def needs(selectors=((),), **resources) -> Request:
    """What one task needs."""
    return Request(amounts_of(resources), selectors)


def tasks(count: int, selectors=((),), **resources) -> Demand:
    """That many equal tasks."""
    return Demand(needs(selectors, **resources), count)


def inside(key: str, *values: str) -> LabelConstraint:
    """`key in values`."""
    return LabelConstraint(key, values)


def spread(name: str, count: int, **resources) -> Gang:
    """A STRICT_SPREAD placement group."""
    bundle = Request(amounts_of(resources), anti_affinity=(f"_PG_{name}", ""))
    return Gang(f"{name}:STRICT_SPREAD|PENDING", (bundle,) * count)


def pack_gang(name: str, count: int, **resources) -> Gang:
    """A PACK placement group."""
    return Gang(f"{name}:PACK|PENDING", (Request(amounts_of(resources)),) * count)


def ask(groups, nodes=(), demand=(), **more) -> SchedulingReply:
    """Our decision, with a head that runs."""
    return schedule(SchedulingRequest((HEAD, *groups), (head(), *nodes), tuple(demand), **more))


def ended(decision: SchedulingReply) -> dict[str, str]:
    """Cause by instance."""
    return {one.instance_id: one.cause.value for one in decision.terminations}
