"""Prometheus metrics of the sidecar.

All metrics of the autoscaler's page: those of Ray's own V2 under the same names, so that dashboards keep working
(AS §5.2), and Raytide's about demand, decisions and tick duration. Takes a tick and updates values; decisions do not
depend on them. Updated after each tick, served by main.py; separate from the operator's metrics, which are in another
process.
"""

from collections import Counter as Tally
from collections.abc import Iterable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from raytide.autoscaler.model import RESOURCE_UNIT_SCALING, Demand, GcsState, Instance, NodeType, Status
from raytide.autoscaler.reporting.tick import Tick
from raytide.autoscaler.state.snapshot import ReconcileResult

PENDING: Final = frozenset({Status.QUEUED, Status.REQUESTED, Status.ALLOCATED, Status.RAY_INSTALLING})
ACTIVE: Final = frozenset({Status.RAY_RUNNING, Status.RAY_STOP_REQUESTED, Status.RAY_STOPPING})
TERMINATING: Final = frozenset({Status.TERMINATING})
UPDATE_BUCKETS: Final = (0.01, 0.1, 1, 10, 100, 1000)
TICK_BUCKETS: Final = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)
SESSION: Final = "SessionName"


class SidecarMetrics:
    """One registry, labelled with one session."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.session = ""
        ProcessCollector(registry=self.registry)
        self._register_rays_metrics()
        self._register_own_metrics()

    def _register_rays_metrics(self) -> None:
        """Register the metrics that have names, labels and resource names as in Ray; the resource label is in lower case."""
        self._pending_nodes = self._gauge("autoscaler_pending_nodes", "Pending nodes.", "NodeType")
        self._active_nodes = self._gauge(
            "autoscaler_active_nodes", "Nodes that run Ray, including the head.", "NodeType"
        )
        self._terminating_nodes = self._gauge(
            "autoscaler_recently_failed_nodes", "Nodes that are terminating; the name is Ray's.", "NodeType"
        )
        self._cluster_resources = self._gauge(
            "autoscaler_cluster_resources", "Resources of active nodes, as configured.", "resource"
        )
        self._pending_resources = self._gauge(
            "autoscaler_pending_resources", "Resources of pending nodes, as configured.", "resource"
        )
        self._started = self._counter("autoscaler_started_nodes", "Requested nodes.")
        self._stopped = self._counter("autoscaler_stopped_nodes", "Nodes that accepted a drain.")
        self._exceptions = self._counter(
            "autoscaler_update_loop_exceptions", "Ticks that failed with an unexpected error."
        )
        self._drain_exceptions = self._counter("autoscaler_drain_node_exceptions", "Drain requests without an answer.")
        self._update_time = Histogram(
            "autoscaler_update_time_seconds",
            "Duration of one tick, in Ray's buckets.",
            [SESSION],
            buckets=UPDATE_BUCKETS,
            registry=self.registry,
        )

    def _register_own_metrics(self) -> None:
        self._demand = self._gauge("raytide_autoscaler_demand", "Pending demand of Ray, by kind of request.", "kind")
        self._unmet = self._gauge("raytide_autoscaler_unmet", "Demand without a node, by cause.", "why")
        self._wanted = self._gauge("raytide_autoscaler_wanted_replicas", "Desired replicas, by group.", "group")
        self._patches = self._counter("raytide_autoscaler_patches", "First patches of a tick, by result.", "result")
        self._drains = self._counter("raytide_autoscaler_drains", "Drain requests, by answer.", "answer")
        self._skipped = self._counter("raytide_autoscaler_skipped_ticks", "Ticks without a decision, by cause.", "why")
        self._tick_time = Histogram(
            "raytide_autoscaler_tick_seconds",
            "Duration of one tick, including reads and writes.",
            [SESSION],
            buckets=TICK_BUCKETS,
            registry=self.registry,
        )

    def update(self, tick: Tick) -> None:
        """Count one tick."""
        self._update_time.labels(self.session).observe(tick.lasted_s)
        self._tick_time.labels(self.session).observe(tick.lasted_s)
        if tick.plan is None:
            self._skipped.labels(self.session, tick.skipped).inc()
            if tick.skipped == "bug":
                self._exceptions.labels(self.session).inc()
            return
        if tick.patch_result is not None:
            self._patches.labels(self.session, tick.patch_result.value).inc()
        self._set_plan_metrics(tick.plan)
        self._count_drains(tick)
        if tick.gcs is not None:
            self._set_demand_gauge(tick.gcs)

    def _set_plan_metrics(self, plan: ReconcileResult) -> None:
        self._set_node_gauges(plan.instances, plan.types)
        self._set_gauge(self._wanted, {group: decision.replicas for group, decision in plan.decisions.items()})
        reply = plan.reply
        if reply is None:
            return
        self._started.labels(self.session).inc(sum(reply.launches.values()) if plan.patch else 0)
        unplaced, impossible = _count(reply.unplaced), _count(reply.impossible)
        self._set_gauge(
            self._unmet,
            {
                "no_room": unplaced - impossible,
                "impossible": impossible,
                "gangs_no_room": len(reply.unplaced_gangs) - len(reply.impossible_gangs),
                "gangs_impossible": len(reply.impossible_gangs),
            },
        )

    def _set_node_gauges(self, instances: Iterable[Instance], types: Iterable[NodeType]) -> None:
        """Count as Ray does: every known type has a value, resources are the type's times the nodes."""
        resources = {node_type.name: node_type.resources for node_type in types}
        by_status = Tally((instance.node_type, instance.status) for instance in instances if instance.node_type)
        names = {*resources, *(name for name, _ in by_status)}
        for gauge, statuses in (
            (self._pending_nodes, PENDING),
            (self._active_nodes, ACTIVE),
            (self._terminating_nodes, TERMINATING),
        ):
            self._set_gauge(gauge, {name: sum(by_status[name, status] for status in statuses) for name in names})
        for gauge, statuses in ((self._pending_resources, PENDING), (self._cluster_resources, ACTIVE)):
            sums: Tally[str] = Tally()
            for (name, status), count in by_status.items():
                if status in statuses:
                    for resource, amount in resources.get(name, ()):
                        sums[resource] += amount * count
            self._set_gauge(gauge, {resource: amount / RESOURCE_UNIT_SCALING for resource, amount in sums.items()})

    def _count_drains(self, tick: Tick) -> None:
        for answer in tick.answers.values():
            label = "none" if answer is None else "accepted" if answer.is_accepted else "rejected"
            self._drains.labels(self.session, label).inc()
            if answer is None:
                self._drain_exceptions.labels(self.session).inc()
            elif answer.is_accepted:
                self._stopped.labels(self.session).inc()

    def _set_demand_gauge(self, state: GcsState) -> None:
        self._set_gauge(
            self._demand,
            {"tasks": _count(state.tasks), "gangs": len(state.gangs), "constraint": _count(state.constraint or ())},
        )

    def _gauge(self, name: str, text: str, label: str) -> Gauge:
        return Gauge(name, text, [SESSION, label], registry=self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, [SESSION, *labels], registry=self.registry)

    def _set_gauge(self, gauge: Gauge, values: dict[str, float] | dict[str, int]) -> None:
        """Set these values and remove all others, so that removed labels do not keep their last value."""
        gauge.clear()
        for label, value in values.items():
            gauge.labels(self.session, label).set(value)


def _count(demands: Iterable[Demand]) -> int:
    return sum(demand.count for demand in demands)
